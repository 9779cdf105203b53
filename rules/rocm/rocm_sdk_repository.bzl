"""The repository @qola_rocm_sdk: compiler, device libraries, HIP and a sysroot, from pinned packages."""

load("//rules/private:finding.bzl", "finding")
load("//rules/private/repositories:debian_packages.bzl", "fetch_packages", "read_pins")
load("//rules/private/repositories:host_python.bzl", "host_python")

_BUILD = """# Written by @qola//rules/rocm:rocm_sdk_repository.bzl from the pinned ROCm packages.
# Make it again: bazel fetch --force --repo=@qola_rocm_sdk

load("@qola//rules/rocm:sdk.bzl", "rocm_sdk")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["sdk/bin/*", "sdk/rocm/lib/*"]))

rocm_sdk(
    name = "sdk",
    optional_flags = {flags},
)
"""

def _rocm_sdk_repository_impl(rctx):
    pins = read_pins(rctx, rctx.attr.lock)
    sdk = json.decode(rctx.read(pins.place + "/sdk.json" if pins.offered else rctx.attr.sdk))
    rctx.watch(rctx.attr.layout)
    python = host_python(rctx)
    fetch_packages(
        rctx,
        lock = rctx.attr.lock,
        mirrors = json.decode(rctx.read(rctx.attr.mirrors)),
        mirrors_line = "qola.rocm(mirrors = [\"http://HOST/debian\"])",
    )
    rctx.report_progress("laying out the SDK")
    result = rctx.execute([python, "-B", "-I", rctx.path(rctx.attr.layout), ".", "sdk"])
    if result.return_code != 0:
        fail(finding(
            "ToolchainError: the pinned ROCm packages are not what the layout expects",
            place = rctx.attr.layout,
            found = (result.stderr or result.stdout).strip(),
            expected = "every file the layout names in a package of {}".format(rctx.attr.lock),
            fix = "mend the layout or the lock, they belong together",
        ))
    for group in ["compiler", "sysroot"]:
        rctx.delete(group)
    rctx.file("BUILD.bazel", _BUILD.format(flags = repr(sdk["optional_flags"])), executable = False)

rocm_sdk_repository = repository_rule(
    implementation = _rocm_sdk_repository_impl,
    attrs = {
        "layout": attr.label(default = Label("//rules/rocm:lay_out_sdk.py"), doc = "The script that arranges the packages' files."),
        "lock": attr.label(default = Label("//third_party/rocm:packages.lock"), doc = "The pinned packages."),
        "mirrors": attr.label(doc = "mirrors.json of @qola_rocm: Debian mirrors to ask first.", mandatory = True),
        "sdk": attr.label(default = Label("//third_party/rocm:sdk.json"), doc = "What is known of the pinned compiler."),
    },
    doc = "The pinned ROCm. Fetched when the first action needs a compiler, not before.",
    environ = ["QOLA_PYTHON"],
)
