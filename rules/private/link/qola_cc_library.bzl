"""qola_cc_library: a user's C++ that includes HIP, compiled by qola's compiler in any build."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_library")
load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "hip_transition")
load("//rules/private/compile:hip_source.bzl", "HOST_ONLY")

def _hip_library_impl(ctx):
    library = ctx.attr.library[0]
    return [library[CcInfo], library[DefaultInfo]]

_hip_library = rule(
    implementation = _hip_library_impl,
    attrs = TRANSITION_ATTRS | {
        "library": attr.label(cfg = hip_transition, mandatory = True, providers = [CcInfo]),
    },
    doc = "A cc_library, compiled by the ROCm toolchain whatever the build around it compiles with.",
    provides = [CcInfo],
)

def qola_cc_library(name, srcs = [], archs = [], copts = [], target_compatible_with = [], tags = [], testonly = False, visibility = None, **kwargs):
    """A cc_library whose sources are compiled as HIP, by the compiler that makes the kernels.

    The headers of qola_library include HIP and Composable Kernel, which a host
    compiler does not understand. Sources that include them belong into a
    qola_cc_library; what depends on it, a cc_binary or another cc_library, is
    compiled and linked by the toolchain of the build as ever.

    Example:
        qola_cc_library(
            name = "attention",
            srcs = ["attention.cpp"],
            hdrs = ["attention.h"],
            deps = [":te_libmha_fwd"],
        )

    Args:
      name: target name.
      srcs: C++ files.
      archs: archs to compile kernels in these sources for, such as ["gfx950"];
        by default they have none, and only host code is compiled.
      copts: compiler flags.
      target_compatible_with: constraints of the platform it is for.
      tags: tags of the target.
      testonly: whether only tests may depend on it.
      visibility: visibility of the target.
      **kwargs: further attributes of cc_library: hdrs, deps, defines, includes.
    """
    cc_library(
        name = name + ".hip",
        srcs = srcs,
        copts = (["--offload-arch=" + arch for arch in archs] if archs else HOST_ONLY) + copts,
        linkstatic = True,
        tags = tags + ["manual"],
        testonly = testonly,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        visibility = ["//visibility:private"],
        **kwargs
    )
    _hip_library(
        name = name,
        library = name + ".hip",
        tags = tags,
        testonly = testonly,
        target_compatible_with = target_compatible_with,
        visibility = visibility,
    )
