"""aiter_local: an AITER checkout on this machine as the source tree."""

load(":tree_build_file.bzl", "write_tree_build_file")

def _aiter_local_impl(rctx):
    root = rctx.workspace_root.get_child(rctx.attr.path) if not rctx.attr.path.startswith("/") else rctx.path(rctx.attr.path)
    if not root.is_dir:
        fail("""
qola: AiterError: no AITER tree
  place:    {place}
  found:    {found}: no such directory
  expected: an AITER checkout with its submodules, or an unpacked wheel
  fix:      git clone --recurse-submodules ... {found}""".format(place = rctx.attr.place, found = root))
    for entry in root.readdir():
        if entry.basename not in [".git", "BUILD.bazel", "BUILD", "WORKSPACE", "MODULE.bazel"]:
            rctx.symlink(entry, entry.basename)
    write_tree_build_file(rctx, {"kind": "local", "path": rctx.attr.path})

aiter_local = repository_rule(
    implementation = _aiter_local_impl,
    attrs = {
        "path": attr.string(doc = "Directory: absolute, or relative to the root module.", mandatory = True),
        "place": attr.string(doc = "Where the path stands, for error messages.", mandatory = True),
    },
    doc = "A local AITER tree; its files are linked, so that an edit rebuilds what reads them.",
)
