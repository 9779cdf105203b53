"""manifest_repository: a manifest's plan, dispatch and libraries."""

load(":host_python.bzl", "run_qola")

def _manifest_repository_impl(rctx):
    manifest = rctx.path(rctx.attr.manifest)
    tree = rctx.path(rctx.attr.aiter).dirname
    rocm = json.decode(rctx.read(rctx.attr.rocm))
    rctx.watch(manifest)
    rctx.watch(rctx.path(rctx.attr.aiter))
    run_qola(rctx, "qola.repository", [
        "manifest",
        "--name",
        rctx.attr.manifest_name,
        "--manifest",
        str(manifest),
        "--display",
        rctx.attr.display,
        "--aiter",
        str(tree),
        "--aiter-repository",
        rctx.attr.aiter_name,
        "--rocm-version",
        rocm["hip_version"],
        "--output",
        ".",
    ] + (["--override-aiter-commit"] if rctx.attr.override_aiter_commit else []), python_path = _python_path(rctx))
    for path in rctx.read("inputs.txt").splitlines():
        rctx.watch(tree.get_child(path))

def _python_path(rctx):
    return [rctx.path(rctx.attr.python_packages).dirname.get_child("site")]

manifest_repository = repository_rule(
    implementation = _manifest_repository_impl,
    attrs = {
        "aiter": attr.label(doc = "AITER.json of the source tree.", mandatory = True),
        "aiter_name": attr.string(doc = "Repository name of the source tree.", mandatory = True),
        "display": attr.string(doc = "The manifest's path as its user knows it, for error messages.", mandatory = True),
        "manifest": attr.label(doc = "The TOML manifest.", mandatory = True),
        "manifest_name": attr.string(doc = "Name of the manifest.", mandatory = True),
        "override_aiter_commit": attr.bool(doc = "Plan although the manifest names another commit."),
        "python_packages": attr.label(default = "@qola_pip_runtime//:requirements.txt", doc = "What qola imports."),
        "rocm": attr.label(default = "@qola_rocm//:rocm.json", doc = "Versions of the detected ROCm."),
    },
    doc = """Plans one manifest.

Holds plan.json, the dispatch and entry points of every module and one
module_library each. The kernel instances live in a kernel_repository.
""",
    environ = ["QOLA_PYTHON"],
)
