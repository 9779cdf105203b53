"""aiter_git: an AITER commit with its submodules."""

load(":host_python.bzl", "run_qola")
load(":tree_build_file.bzl", "write_tree_build_file")
load(":tree_patches.bzl", "PATCH_ATTRS", "apply_patches", "prepare_patches")

def _aiter_git_impl(rctx):
    patches = prepare_patches(rctx)
    run_qola(rctx, "qola.fetch.git", {
        "commit": rctx.attr.commit,
        "output": ".",
        "place": rctx.attr.place,
        "remote": rctx.attr.remote,
    })
    write_tree_build_file(rctx, {
        "commit": rctx.attr.commit,
        "kind": "git",
        "patches": apply_patches(rctx, patches).pins,
        "remote": rctx.attr.remote,
    })
    run_qola(rctx, "qola.fetch.fetched", {"tree": "."})

aiter_git = repository_rule(
    implementation = _aiter_git_impl,
    attrs = PATCH_ATTRS | {
        "commit": attr.string(doc = "Full commit id.", mandatory = True),
        "remote": attr.string(doc = "URL or path that git can fetch from.", mandatory = True),
    },
    doc = """AITER's sources at one commit, Composable Kernel and the other submodules included.

The machine's own git configuration says how to reach the remote; the commit id
says what comes.
""",
    environ = ["QOLA_PYTHON"],
)
