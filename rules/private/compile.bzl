"""How sources of dispatch and entry points are compiled: a cc_library with AITER's flags."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET")
load("@rules_hip//lib:compile.bzl", "arch_defines", "offload")

# Line tables, if --@rules_hip//rocm:debug is set.
DEBUG_FLAGS = select({
    Label("@rules_hip//rocm:debug_enabled"): ["-gline-tables-only"],
    "//conditions:default": [],
})

COMPRESS_FLAGS = select({
    Label("@rules_hip//kernels:compress_enabled"): ["--offload-compress"],
    "//conditions:default": [],
})

def hip_source(name, src, archs, copts = [], local_defines = [], **kwargs):
    """Compiles one source with AITER's flags, as a cc_library.

    Args:
      name: target name, and the compilation unit's id, which HIP puts into the object: unique within a library.
      src: the source.
      archs: archs to compile device code for, one code object each.
      copts: further compiler flags.
      local_defines: further macros.
      **kwargs: further attributes of cc_library.
    """
    aiter_cc_library(
        name = name,
        srcs = [src],
        # The id must not be derived from the path: two objects with the same id
        # define the same symbol, and the bytes must not depend on a path.
        copts = offload(archs) + ["-cuid=" + name] + copts + DEBUG_FLAGS + COMPRESS_FLAGS,
        local_defines = sorted(arch_defines(archs)) + local_defines,
        **kwargs
    )

def aiter_cc_library(name, **kwargs):
    """Declares a cc_library that is compiled with AITER's flags and linked into libraries of a manifest.

    Args:
      name: target name.
      **kwargs: further attributes of cc_library.
    """
    cc_library(
        name = name,
        # A plan's flags are complete arguments; cc_library would split them by the shell's rules.
        features = ["aiter", "no_copts_tokenization"],
        # Bazel would compile each source a second time without -fPIC.
        linkstatic = True,
        # The output directory's name depends on options of the surrounding
        # build, even on those that the transition resets. With
        # --experimental_output_paths=strip it stays out of the action's key.
        tags = ["supports-path-mapping"],
        **(KERNEL_TARGET | kwargs)
    )
