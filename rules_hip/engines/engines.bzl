"""emulator_engines: the engine of the emulator, compiled for two levels of x86-64."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_shared_library")
load("//rocm:rocm_files.bzl", "rocm_files")

# By level of x86-64: that of machines with AVX2, and a slower engine for others.
_OPTIMIZATION = {
    "x86-64": "-O1",
    "x86-64-v3": "-O3",
}

_LANES = [
    32,
    64,
]

# By suffix of its target, a source of the engine and its definitions.
_PARTS = {
    "operations": (
        "operations.c",
        [],
    ),
} | {
    "engine_{}".format(lanes): (
        "engine.c",
        ["LANES={}".format(lanes)],
    )
    for lanes in _LANES
}

_SOURCES = [
    "arithmetic.h",
    "engine.c",
    "engine.h",
    "operations.c",
    "operations.h",
]

def emulator_engines(name):
    """Declares the engines.

    Args:
      name: of the target with the libraries, engine_<level>.so for each level.
    """
    rocm = [Label("//rocm")]

    # In one directory: one of them is generated.
    native.genrule(
        name = name + ".sources",
        srcs = ["//gfxemu:" + source for source in _SOURCES],
        outs = ["gfxemu/" + source for source in _SOURCES],
        cmd = "cp $(SRCS) $(RULEDIR)/gfxemu",
    )
    for level, optimization in _OPTIMIZATION.items():
        for part, (source, defines) in _PARTS.items():
            cc_library(
                name = "{}_{}".format(part, level),
                srcs = ["gfxemu/" + source] + ["gfxemu/" + header for header in _SOURCES if header.endswith(".h")],
                # As native.py has them.
                copts = [
                    "-xc",
                    optimization,
                    "-march=" + level,
                    "-mprefer-vector-width=512",
                    "-std=gnu11",
                    "-fwrapv",
                    "-ffp-contract=off",
                    "-fno-strict-aliasing",
                    "-fno-math-errno",
                    "-fno-trapping-math",
                ],
                linkstatic = True,
                local_defines = defines,
                tags = ["supports-path-mapping"],
                target_compatible_with = rocm,
            )
        cc_shared_library(
            name = level + ".shared",
            shared_lib_name = "engine_{}.so".format(level),
            target_compatible_with = rocm,
            user_link_flags = [
                "-no-hip-rt",
                "-static-libgcc",
                "-lm",
            ],
            deps = [":{}_{}".format(part, level) for part in _PARTS],
        )
    rocm_files(
        name = name,
        srcs = [":{}.shared".format(level) for level in _OPTIMIZATION],
        visibility = ["//visibility:public"],
    )
