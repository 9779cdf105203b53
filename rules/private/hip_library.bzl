"""hip_library: one HIP source as a cc_library, compiled for named archs with AITER's flags."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/rocm:flags.bzl", "ARCH_DEFINES")

def hip_library(name, src, archs, copts = [], deps = [], tags = [], **kwargs):
    """Compiles one source for the given archs and no other.

    Args:
      name: target name; also the compilation-unit id that HIP puts into the
        object, so it has to be unique within a library.
      src: label of one .cpp file.
      archs: list of archs, such as ["gfx950"]: one code object each.
      copts: further compiler flags.
      deps: header_set and cc_library targets.
      tags: tags of the target.
      **kwargs: further attributes of cc_library.
    """
    cc_library(
        name = name,
        srcs = [src],
        copts = ["--offload-arch=" + arch for arch in archs] + [
            # Not derived from the path: two objects with the same id define
            # the same symbol, and a path would make the bytes depend on it.
            "-cuid=" + name,
        ] + copts + select({
            Label("//rules/rocm:debug_enabled"): ["-gline-tables-only"],
            "//conditions:default": [],
        }),
        features = ["aiter"],
        # Bazel would compile each source a second time without -fPIC.
        linkstatic = True,
        local_defines = sorted({
            define: None
            for arch in archs
            for define in ARCH_DEFINES.get(arch, [])
        }.keys()),
        # The output directory's name depends on options of the build around,
        # even those that the transition puts back. With
        # --experimental_output_paths=strip it stays out of the action's key.
        tags = tags + ["supports-path-mapping"],
        # Without the transition a host compiler would be asked to compile HIP.
        target_compatible_with = [Label("//rules/rocm:rocm")],
        deps = deps,
        **kwargs
    )
