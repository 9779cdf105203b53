"""prebuilt_repository: a manifest's libraries, prebuilt where somebody has them, else built."""

load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//repositories:progress.bzl", "report_step")
load(":aiter.bzl", "PATCH_ATTRS", "prepare_patches")
load(":manifest_repository.bzl", "MANIFEST_ATTRS", "watch_triton_files")
load(":run_qola.bzl", "run_qola")

_VARIABLE = "QOLA_PREBUILT"

def _look_up(rctx):
    """How prebuilt bundles are looked for: "yes", "offline" or "no"."""
    value = rctx.getenv(_VARIABLE) or "yes"
    if value not in ["yes", "offline", "no"]:
        fail(finding(
            "QolaError: a way to look for prebuilt bundles that qola does not know",
            place = "{0} in the environment, or --repo_env={0}".format(_VARIABLE),
            found = value,
            expected = "yes, offline (directories and earlier downloads only) or no (build)",
            fix = "--repo_env={}=no".format(_VARIABLE),
        ))
    return "offline" if rctx.attr.offline and value == "yes" else value

def _prebuilt_repository_impl(rctx):
    patches = prepare_patches(rctx)
    manifest = rctx.path(rctx.attr.manifest)
    rctx.watch(manifest)
    rctx.watch(rctx.path(rctx.attr.rocm))
    report_step(rctx, "fetching a prebuilt bundle of {}".format(rctx.attr.display))
    run_qola(rctx, "qola.prebuilt.repository_rule", {
        "aiter": rctx.attr.aiter,
        "archs": rctx.attr.archs,
        "display": rctx.attr.display,
        "folder": rctx.workspace_root,
        "gpu-archs": rctx.getenv("GPU_ARCHS") or "",
        "look-up": _look_up(rctx),
        "manifest": manifest,
        "mode": rctx.attr.mode or None,
        "output": ".",
        "patches-dir": patches,
        "place": rctx.attr.place,
        "public-key": rctx.attr.public_key,
        "repository": rctx.attr.repository,
        "rocm": rctx.path(rctx.attr.rocm),
        "url": rctx.attr.urls,
    }, packages = [rctx.attr.python_packages])
    watch_triton_files(rctx, manifest)
    root = rctx.path(Label("//:MODULE.bazel")).dirname
    for path in rctx.read("inputs.txt").splitlines():
        rctx.watch(root.get_child(path))

prebuilt_repository = repository_rule(
    implementation = _prebuilt_repository_impl,
    attrs = PATCH_ATTRS | MANIFEST_ATTRS | {
        "aiter": attr.string(doc = "Identity of the AITER source as JSON.", mandatory = True),
        "offline": attr.bool(doc = "Ask no server."),
        "public_key": attr.string(doc = "minisign's public key of the signer."),
        "repository": attr.string(doc = "Name of the manifest's repository.", mandatory = True),
        "urls": attr.string_list(doc = "Sources, in order."),
    },
    doc = """Libraries of a manifest.

If a source has the prebuilt bundle of exactly this manifest, AITER, ROCm and
qola, the repository contains its files, and AITER is not fetched. Otherwise the
same targets build the libraries. A wrong digest or signature fails the fetch.
""",
    environ = ["QOLA_PYTHON"],
)
