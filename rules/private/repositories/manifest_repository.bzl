"""manifest_repository: a manifest's plan, dispatch and libraries."""

load("@rules_hip//repositories:progress.bzl", "report_step")
load(":aiter.bzl", "local_root", "patches_folder", "watch_patches")
load(":run_qola.bzl", "PACKAGES_ATTRS", "run_qola")

# Of the rules for a manifest.
MANIFEST_ATTRS = {
    "archs": attr.string_list(doc = "Archs instead of the manifest's."),
    "display": attr.string(doc = "The manifest's path as its user knows it, for error messages.", mandatory = True),
    "manifest": attr.label(doc = "The TOML manifest.", mandatory = True),
    "mode": attr.string(doc = "Build mode of modules that have none of their own."),
    "rocm": attr.label(default = "@rocm//:rocm.json", doc = "Versions of the detected ROCm."),
}

def watch_triton_files(rctx, manifest):
    """Watches the files of Triton kernels in the manifest's directory.

    Args:
      rctx: the repository context.
      manifest: path of the manifest.
    """
    files = rctx.path("triton_files.txt")
    for path in rctx.read(files).splitlines() if files.exists else []:
        rctx.watch(manifest.dirname.get_child(*path.split("/")))

def _spec(rctx):
    """The choices that replace the manifest's, as JSON of qola.plan.spec.BuildSpec."""
    if rctx.attr.spec:
        return rctx.read(rctx.attr.spec)
    return json.encode({
        "archs": rctx.attr.archs,
        "mode": rctx.attr.mode or None,
        "override_aiter_commit": rctx.attr.override_aiter_commit,
        "require": rctx.attr.require or "opaque",
    })

def _manifest_repository_impl(rctx):
    manifest = rctx.path(rctx.attr.manifest)
    tree = rctx.path(rctx.attr.aiter).dirname
    rocm = json.decode(rctx.read(rctx.attr.rocm))
    rctx.watch(manifest)
    rctx.watch(rctx.path(rctx.attr.aiter))
    source = json.decode(rctx.read(rctx.attr.aiter))
    local = {}
    if source["kind"] == "local":
        local["checkout"] = local_root(rctx, source["path"])
    report_step(rctx, "planning {}".format(rctx.attr.display))
    options = local | {
        "aiter": tree,
        "aiter-repository": rctx.attr.aiter_name,
        "display": rctx.attr.display,
        # Without a dependency: see variables.txt below.
        "gpu-archs": rctx.os.environ.get("GPU_ARCHS", ""),
        "manifest": manifest,
        "name": rctx.attr.manifest_name,
        "output": ".",
        "rocm-version": rocm["rocm_version"],
        "spec": _spec(rctx),
    }
    packages = [rctx.attr.python_packages]
    error = run_qola(rctx, "qola.repository", options, fatal = False, packages = packages)

    # Only the generators know which of them import packages (40 MB), and those of most manifests do not.
    if rctx.path("needs_packages").exists:
        rctx.delete("needs_packages")
        generators = Label("@qola_pip_generators//:requirements.txt")
        rctx.watch(rctx.path(generators))
        error = run_qola(rctx, "qola.repository", options, fatal = False, packages = packages + [generators])
    if error and source["kind"] == "local":
        fail("\n" + error)

    # A network that is gone comes back, and nothing would have the plan made anew.
    if error and rctx.path("unfetched").exists:
        fail("\n" + error)

    # A manifest that names its archs is not planned anew for another value.
    variables = rctx.path("variables.txt")
    for name in rctx.read(variables).splitlines() if variables.exists else []:
        rctx.getenv(name)

    watch_triton_files(rctx, manifest)

    # Of a checkout whose commit was compared with the manifest's.
    head_files = rctx.path("head_files.txt")
    for path in rctx.read(head_files).splitlines() if head_files.exists else []:
        rctx.watch(path)

    # The patches that were compared with the tree's.
    patches_dir = rctx.path("patches_dir.txt")
    patches_dir = rctx.read(patches_dir) if patches_dir.exists else ""
    if patches_dir:
        watch_patches(rctx, patches_folder(rctx, patches_dir, manifest.dirname))
    if error:
        # Bazel prints the message of a rule that fails three times, and that of a BUILD file once, after the line that
        # fails: the message is not in that line. (A local tree may be the reason and is not watched yet, so there the
        # rule fails.)
        rctx.file("BUILD.bazel", "MESSAGE = {}\n\nfail(MESSAGE)\n".format(repr("\n" + error)), executable = False)
        return
    for path in rctx.read("inputs.txt").splitlines():
        rctx.watch(tree.get_child(path))
    if source["kind"] == "local":
        for path in rctx.read("watched_dirs.txt").splitlines():
            _watch_directory(rctx, tree.get_child(path))

def _watch_directory(rctx, directory):
    """Watches a directory with all that is in it, or for one to appear."""
    if directory.is_dir:
        # Its place in the user's tree, to which a local tree's repository links.
        rctx.watch_tree(directory.realpath)
    else:
        rctx.watch(directory)

manifest_repository = repository_rule(
    implementation = _manifest_repository_impl,
    attrs = PACKAGES_ATTRS | MANIFEST_ATTRS | {
        "aiter": attr.label(doc = "AITER.json of the source tree.", mandatory = True),
        "aiter_name": attr.string(doc = "Repository name of the source tree.", mandatory = True),
        # The implementation does not read it. What is declared differently is fetched without a look at what it
        # watched, and Bazel before 9.3 fails where a directory that it watched is gone (bazelbuild/bazel#30883).
        "aiter_path": attr.string(doc = "Where a local source tree is."),
        "manifest_name": attr.string(doc = "Name of the manifest.", mandatory = True),
        "override_aiter_commit": attr.bool(doc = "Plan although the manifest names another commit."),
        "require": attr.string(doc = "Level that each direction of Composable Kernel must reach."),
        "spec": attr.label(doc = "JSON of qola.plan.spec.BuildSpec, in place of archs, mode, override_aiter_commit and require."),
    },
    doc = """Plans one manifest, when a target of it is asked for.

Holds plan.json, the kernel instances, dispatch and entry points of every module
and one module_library each.
""",
    environ = ["QOLA_PYTHON"],
)
