"""Repositories of AITER source trees: from a wheel, from git, or a local directory, with patches applied."""

load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//repositories:metadata.bzl", "reproducible")
load("@rules_hip//repositories:progress.bzl", "report_step")
load(":run_qola.bzl", "PACKAGES_ATTRS", "run_qola")

_BUILD = '''# Written by @qola//rules/private/repositories:aiter.bzl.
# Every file is a target: a header set names only the files that it includes.

package(default_visibility = ["//visibility:public"])

exports_files(glob(
    ["**"],
    exclude = [".git/**", "BUILD.bazel"],
))
'''

def _write_build_file(rctx, source):
    """Writes BUILD.bazel and AITER.json, which records the source and whose label stands for the tree."""
    rctx.file("BUILD.bazel", _BUILD, executable = False)
    rctx.file("AITER.json", json.encode(source) + "\n", executable = False)

PATCH_ATTRS = PACKAGES_ATTRS | {
    "patches_dir": attr.string(doc = "Directory of patches: absolute, or relative to the root module; qola:patches: qola's own; empty: no patches."),
    "place": attr.string(doc = "Place of the tag or pin, for error messages.", mandatory = True),
}

# A patches_dir that names qola's own patches (qola/common/layout.py).
OWN_PATCHES = "qola:patches"

def patches_folder(rctx, patches_dir, folder):
    """Returns the path of a patches_dir.

    Args:
      rctx: the repository context.
      patches_dir: absolute, relative to `folder`, or OWN_PATCHES.
      folder: path of a directory.

    Returns:
      The path of the directory.
    """
    if patches_dir == OWN_PATCHES:
        return rctx.path(Label("//:MODULE.bazel")).dirname.get_child("qola/aiter/patches")
    return rctx.path(patches_dir) if patches_dir.startswith("/") else folder.get_child(patches_dir)

def watch_patches(rctx, directory):
    """Watches the patches in a directory, or the directory's creation.

    Args:
      rctx: the repository context.
      directory: path of the directory.

    Returns:
      Whether the directory contains patches.
    """
    rctx.watch(directory)
    entries = directory.readdir(watch = "yes") if directory.is_dir else []
    patches = [e for e in entries if e.basename.endswith(".patch") or e.basename.endswith(".diff")]
    for patch in patches:
        rctx.watch(patch)
    return bool(patches)

def prepare_patches(rctx):
    """Watches the patches of a repository rule with PATCH_ATTRS. Call it before fetching.

    Args:
      rctx: the repository context.

    Returns:
      Path of the directory of patches; None without patches.
    """
    if not rctx.attr.patches_dir:
        return None
    directory = patches_folder(rctx, rctx.attr.patches_dir, rctx.workspace_root)
    if not watch_patches(rctx, directory):
        # Fails before fetching, which takes minutes.
        fail(finding(
            "AiterError: no patches",
            place = rctx.attr.place,
            found = "patches_dir = \"{}\": {}".format(
                rctx.attr.patches_dir,
                "contains no patch" if directory.exists else "no such directory",
            ),
            expected = "a directory with *.patch or *.diff files: absolute, or relative to the root module",
            fix = "git format-patch -o {} BASE in an AITER checkout, or remove patches_dir".format(directory),
        ))

    # Fetches the Python packages before the tree, too.
    rctx.path(rctx.attr.python_packages)
    return directory

def _apply_patches(rctx, directory):
    """Applies patches to the tree in the repository's directory; a reject fails the fetch.

    Args:
      rctx: the repository context.
      directory: result of prepare_patches.

    Returns:
      struct(pins, touched): the patches as in AITER.json, in the order of
      application, and the files they changed, relative to the tree.
    """
    if not directory:
        return struct(pins = [], touched = [])
    run_qola(rctx, "qola.fetch.patches", {
        "display": rctx.attr.patches_dir,
        "output": "patched.json",
        "patches-dir": directory,
        "place": rctx.attr.place,
        "root": ".",
    }, packages = [rctx.attr.python_packages])
    result = json.decode(rctx.read("patched.json"))
    rctx.delete("patched.json")
    return struct(pins = result["patches"], touched = result["touched"])

def _metadata(rctx):
    # Patches are files of this machine.
    return None if rctx.attr.patches_dir else reproducible(rctx)

def _aiter_wheel_impl(rctx):
    patches = prepare_patches(rctx)
    report_step(rctx, "fetching {} {}".format(rctx.attr.package, rctx.attr.version))
    run_qola(rctx, "qola.fetch.wheel", {
        "output": "aiter.zip",
        "package": rctx.attr.package,
        "place": rctx.attr.place,
        "sha256": rctx.attr.sha256,
        "version": rctx.attr.version,
    })
    rctx.extract("aiter.zip")
    rctx.delete("aiter.zip")
    _write_build_file(rctx, {
        "kind": "wheel",
        "package": rctx.attr.package,
        "patches": _apply_patches(rctx, patches).pins,
        "sha256": rctx.attr.sha256,
        "version": rctx.attr.version,
    })
    run_qola(rctx, "qola.fetch.fetched", {"tree": "."})
    return _metadata(rctx)

aiter_wheel = repository_rule(
    implementation = _aiter_wheel_impl,
    attrs = PATCH_ATTRS | {
        "package": attr.string(doc = "Name on the package index.", mandatory = True),
        "sha256": attr.string(doc = "Digest of the wheel file.", mandatory = True),
        "version": attr.string(doc = "Exact version; pre-releases are allowed.", mandatory = True),
    },
    doc = """AITER's sources and generators from its wheel, fetched by pip.

The machine's pip configuration (index, mirrors, certificates) determines where
to fetch the file; the digest determines its content, so pip's settings do not
affect the result.
""",
)

def _aiter_git_impl(rctx):
    patches = prepare_patches(rctx)
    report_step(rctx, "fetching AITER at commit " + rctx.attr.commit[:12])
    run_qola(rctx, "qola.fetch.git", {
        "commit": rctx.attr.commit,
        "output": ".",
        "place": rctx.attr.place,
        "remote": rctx.attr.remote,
    })
    _write_build_file(rctx, {
        "commit": rctx.attr.commit,
        "kind": "git",
        "patches": _apply_patches(rctx, patches).pins,
        "remote": rctx.attr.remote,
    })
    run_qola(rctx, "qola.fetch.fetched", {"tree": "."})
    return _metadata(rctx)

aiter_git = repository_rule(
    implementation = _aiter_git_impl,
    attrs = PATCH_ATTRS | {
        "commit": attr.string(doc = "Full commit id.", mandatory = True),
        "remote": attr.string(doc = "URL or path that git can fetch from.", mandatory = True),
    },
    doc = """AITER's sources at one commit, Composable Kernel and the other submodules included.

The machine's git configuration determines how to reach the remote; the commit
id determines the content.
""",
    environ = ["QOLA_PYTHON"],
)

# Files that this repository writes; a file of the tree with such a name is not linked.
_OWN = [".git", "AITER.json", "BUILD", "BUILD.bazel", "MODULE.bazel", "WORKSPACE"]

def _watch_touched(rctx, root, touched):
    """Watches the originals of patched files, so that an edit applies the patches again."""
    watched = {}
    for file in touched:
        path = root
        for part in file.split("/"):
            # Patching replaced the link by a directory, in which a new file of
            # the tree appears only after a fetch.
            if path.is_dir and path != root and str(path) not in watched:
                path.readdir(watch = "yes")
                watched[str(path)] = None
            path = path.get_child(part)
        rctx.watch(path)

def local_root(rctx, path):
    """Returns the directory of a local source: absolute, or relative to the root module.

    Args:
      rctx: the repository context.
      path: the attribute path of aiter_local.

    Returns:
      Its path.
    """
    return rctx.path(path) if path.startswith("/") else rctx.workspace_root.get_child(path)

def _aiter_local_impl(rctx):
    patches = prepare_patches(rctx)
    root = local_root(rctx, rctx.attr.path)
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
    patched = _apply_patches(rctx, patches)
    _watch_touched(rctx, root, patched.touched)

    # A tree from qola checkout records its pin and the patches in it.
    record = root.get_child("AITER.json")
    rctx.watch(record)
    known = json.decode(rctx.read(record)) if record.exists else {}
    _write_build_file(rctx, known | {
        "kind": "local",
        "patches": known.get("patches", []) + patched.pins,
        "path": rctx.attr.path,
    })

aiter_local = repository_rule(
    implementation = _aiter_local_impl,
    attrs = PATCH_ATTRS | {
        "path": attr.string(doc = "Directory: absolute, or relative to the root module.", mandatory = True),
    },
    doc = """A local AITER tree. Its files are linked, so that an edit rebuilds the targets that read them.

Patched files are copies in this repository; the tree is never written to.
""",
    environ = ["QOLA_PYTHON"],
)
