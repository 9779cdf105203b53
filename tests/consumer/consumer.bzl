"""consumer_test: a program against the public headers, run on the fake HIP runtime."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")
load("@rules_python//python:defs.bzl", "py_test")
load("//rules/rocm:rocm_files.bzl", "rocm_files")

_ROCM = ["//rules/rocm:rocm"]

# There is no device code in it, and so no arch to compile for.
_COPTS = ["--offload-host-only"]

def consumer_test(name, forward = None, backward = None):
    """Tests which kernels the libraries of a manifest launch.

    Declares consumer_<name>, the program, and test_consumer_<name>.

    Args:
      name: name of the manifest; the rows of the table stand under it.
      forward: label of its libmha_fwd, if it has one.
      backward: label of its libmha_bwd, if it has one.
    """
    program = "consumer_" + name
    sides = {"forward": forward, "backward": backward}
    sides = {side: library for side, library in sides.items() if library}
    for side, library in sides.items():
        cc_library(
            name = program + "." + side,
            srcs = [
                side + ".cpp",
                "convert.h",
                "problem.h",
            ],
            copts = _COPTS,
            target_compatible_with = _ROCM,
            deps = [library],
        )
    cc_binary(
        name = program,
        srcs = [
            "main.cpp",
            "problem.h",
        ],
        copts = _COPTS,
        linkopts = ["-lamdhip64"],
        local_defines = ["CONSUMER_" + side.upper() for side in sides],
        target_compatible_with = _ROCM,
        deps = [program + "." + side for side in sides],
    )
    rocm_files(
        name = program + ".file",
        srcs = [program],
    )
    native.filegroup(
        name = program + ".plan",
        srcs = [sides.values()[0]],
        output_group = "plan",
    )
    libraries = sides.values()
    py_test(
        name = "test_" + program,
        size = "small",
        srcs = [
            "predict.py",
            "table.py",
            "test_consumer_table.py",
            "//tests/fake_hip:python",
            "//tests/library:symbols",
            "//tests/python:pytest_main",
        ],
        data = libraries + [
            program + ".file",
            program + ".plan",
            "//:pyproject.toml",
            "//tests/fake_hip",
            "@aiter//:AITER.json",
        ],
        env = {
            "PYTEST_FILES": "$(rootpath test_consumer_table.py)",
            "QOLA_TEST_AITER_TREE": "$(rootpath @aiter//:AITER.json)",
            "QOLA_TEST_FAKE_HIP": "$(rootpath //tests/fake_hip)",
            "QOLA_TEST_LIBRARIES": " ".join(["$(rootpath {})".format(library) for library in libraries]),
            "QOLA_TEST_MANIFEST": name,
            "QOLA_TEST_PLAN": "$(rootpath {}.plan)".format(program),
            "QOLA_TEST_PROGRAM": "$(rootpath {}.file)".format(program),
        },
        imports = ["../.."],
        main = "pytest_main.py",
        tags = ["no-remote"],
        deps = ["@qola_pip_dev//:packages"],
    )
