"""aiter_local: an AITER tree on this machine as the source tree."""

load("//rules/private:finding.bzl", "finding")
load(":tree_build_file.bzl", "write_tree_build_file")
load(":tree_patches.bzl", "PATCH_ATTRS", "apply_patches", "prepare_patches")

# This repository's own files, whatever the tree has of these names.
_OWN = [".git", "AITER.json", "BUILD", "BUILD.bazel", "MODULE.bazel", "WORKSPACE"]

def _watch_touched(rctx, root, touched):
    """Watches what a patched file was made from: an edit there has to be patched anew."""
    watched = {}
    for file in touched:
        path = root
        for part in file.split("/"):
            # Patching made a real directory of this one, in which a new file
            # of the tree shows after a fetch only.
            if path.is_dir and path != root and str(path) not in watched:
                path.readdir(watch = "yes")
                watched[str(path)] = None
            path = path.get_child(part)
        rctx.watch(path)

def _aiter_local_impl(rctx):
    patches = prepare_patches(rctx)
    root = rctx.workspace_root.get_child(rctx.attr.path) if not rctx.attr.path.startswith("/") else rctx.path(rctx.attr.path)
    if not root.is_dir:
        fail(finding(
            "AiterError: no AITER tree",
            place = rctx.attr.place,
            found = "{}: no such directory".format(root),
            expected = "an AITER checkout with its submodules, or an unpacked wheel",
            fix = "git clone --recurse-submodules ... {}".format(root),
        ))
    for entry in root.readdir():
        if entry.basename not in _OWN:
            rctx.symlink(entry, entry.basename)
    patched = apply_patches(rctx, patches)
    _watch_touched(rctx, root, patched.touched)

    # A tree that qola checkout prepared knows its pin and has patches already.
    record = root.get_child("AITER.json")
    rctx.watch(record)
    known = json.decode(rctx.read(record)) if record.exists else {}
    write_tree_build_file(rctx, known | {
        "kind": "local",
        "patches": known.get("patches", []) + patched.pins,
        "path": rctx.attr.path,
    })

aiter_local = repository_rule(
    implementation = _aiter_local_impl,
    attrs = PATCH_ATTRS | {
        "path": attr.string(doc = "Directory: absolute, or relative to the root module.", mandatory = True),
    },
    doc = """A local AITER tree; its files are linked, so that an edit rebuilds what reads them.

What patches change is a file of this repository; the tree is never written.
""",
    environ = ["QOLA_PYTHON"],
)
