"""hip_source: one HIP source as a cc_library, compiled for named archs with AITER's flags."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES")

# Line tables, where --@qola//rules/rocm:debug asks for them.
DEBUG_FLAGS = select({
    Label("//rules/rocm:debug_enabled"): ["-gline-tables-only"],
    "//conditions:default": [],
})

# For sources without device code: half of the compile is spared.
HOST_ONLY = [
    "--offload-host-only",
    # Half of AITER's flags are for device code.
    "-Wno-unused-command-line-argument",
]

_COMPRESS_FLAGS = select({
    Label("//rules/private:compress_enabled"): ["--offload-compress"],
    "//conditions:default": [],
})

def _offload(archs):
    return ["--offload-arch=" + arch for arch in archs]

def _defines(archs):
    return sorted({
        define: None
        for arch in archs
        for define in ARCH_DEFINES.get(arch, [])
    }.keys())

def hip_source(name, src, archs, copts = [], local_defines = [], deps = [], tags = [], fixed_archs = False, **kwargs):
    """Compiles one source, as a cc_library, for the given archs and no other: one code object each.

    `name` is also the compilation-unit id that HIP puts into the object, so it has to be unique
    within a library. `fixed_archs`: for all of `archs`, whatever --@qola//:archs says.
    """

    # A source of one arch is asked for by libraries that have the arch alone.
    select_archs = len(archs) > 1 and not fixed_archs
    cc_library(
        name = name,
        srcs = [src],
        copts = (by_archs(archs, _offload) if select_archs else _offload(archs)) + [
            # Not derived from the path: two objects with the same id define
            # the same symbol, and a path would make the bytes depend on it.
            "-cuid=" + name,
        ] + copts + DEBUG_FLAGS + _COMPRESS_FLAGS,
        features = ["aiter"],
        # Bazel would compile each source a second time without -fPIC.
        linkstatic = True,
        local_defines = (by_archs(archs, _defines) if select_archs else _defines(archs)) + local_defines,
        # The output directory's name depends on options of the build around,
        # even those that the transition puts back. With
        # --experimental_output_paths=strip it stays out of the action's key.
        tags = tags + ["supports-path-mapping"],
        deps = deps,
        **(KERNEL_TARGET | kwargs)
    )
