"""The repository @qola_rocm_headers: headers of ROCm's libraries, which go with the pinned compiler."""

load("//rules/private/repositories:debian_packages.bzl", "fetch_packages")

_BUILD = """# Written by @qola//rules/rocm:rocm_headers_repository.bzl from the pinned packages.
# Make it again: bazel fetch --force --repo=@qola_rocm_headers

load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["headers/usr/include/**"]),
    includes = ["headers/usr/include"],
    visibility = ["//visibility:public"],
)
"""

def _rocm_headers_repository_impl(rctx):
    fetch_packages(
        rctx,
        lock = rctx.attr.lock,
        mirrors = rctx.attr.mirrors,
        mirrors_line = "qola.rocm(mirrors = [\"http://HOST/debian\"])",
    )
    rctx.file("BUILD.bazel", _BUILD, executable = False)

rocm_headers_repository = repository_rule(
    implementation = _rocm_headers_repository_impl,
    attrs = {
        "lock": attr.label(default = Label("//third_party/rocm_headers:packages.lock"), doc = "The pinned packages."),
        "mirrors": attr.string_list(doc = "Debian mirrors to ask first."),
    },
    doc = """rocPRIM, rocThrust, hipCUB, hipRAND, and what PyTorch's headers for ROCm include.

Fetched when the pinned ROCm compiles the first module that may include them.""",
)
