"""qola_cc_library: C++ that includes the headers of a manifest's libraries."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//hip:compile.bzl", "selected_archs")
load("@rules_hip//hip:hip_library.bzl", "HipInfo", "LIBRARY_ATTRS", "library_providers")
load("@rules_hip//hip:toolchain.bzl", "use_hip_toolchain")
load("@rules_hip//lib:compile.bzl", "HOST_ONLY")

def _qola_cc_library_impl(ctx):
    if ctx.attr.archs:
        return library_providers(ctx, selected_archs(ctx))

    # Also with --@qola//:archs, which restricts the manifests.
    return library_providers(ctx, [], copts = HOST_ONLY)

qola_cc_library = rule(
    implementation = _qola_cc_library_impl,
    attrs = LIBRARY_ATTRS | {
        "archs": attr.string_list(doc = "Archs to compile kernels in these sources for, such as gfx950; `--@qola//:archs` selects some of them. Without the attribute, only host code is compiled."),
    },
    doc = """A C++ library whose own sources are compiled as HIP, by the compiler of the kernels.

The headers of qola_library include HIP and Composable Kernel, which a host
compiler does not understand. Put sources that include them into a
qola_cc_library. The toolchain of the build compiles its dependencies, and
compiles and links the cc_binary or cc_library that depends on it. It is a
[hip_library](#hip_library) that may have host code only.

Example:
    qola_cc_library(
        name = "attention",
        srcs = ["attention.cpp"],
        hdrs = ["attention.h"],
        deps = [":te_libmha_fwd"],
    )
""",
    fragments = ["cpp"],
    provides = [CcInfo, HipInfo],
    toolchains = use_cc_toolchain() + use_hip_toolchain(),
)
