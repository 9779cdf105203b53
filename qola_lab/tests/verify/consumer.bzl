"""consumer_test: a program against a bundle alone, run on the fake HIP runtime."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_hip//rocm:rocm_files.bzl", "rocm_files")
load("//tests/support:pytest_test.bzl", "pytest_test")
load(":bundle_library.bzl", "bundle_library")

_ROCM = ["@rules_hip//rocm:rocm"]

# There is no device code in it, and so no arch to compile for.
_COPTS = ["--offload-host-only"]

# The half of the program that calls a direction's entry point.
_SOURCES = {
    "bwd": ("libmha_bwd", "backward.cpp"),
    "fwd": ("libmha_fwd", "forward.cpp"),
}

def _unique(items):
    return {item: None for item in items}.keys()

def consumer_program(name, bundle, namespace, directions, static = False, tags = []):
    """Declares a program that has nothing but a bundle and HIP, and <name>.file, its file.

    Args:
      name: target name.
      bundle: label of a qola_bundle.
      namespace: the manifest's, with which the names of its libraries begin.
      directions: directions whose entry points the program calls.
      static: whether the bundle's archive is linked, instead of its libraries.
      tags: tags of all of it.
    """
    bundle_library(
        name = name + ".bundle",
        bundle = bundle,
        tags = tags,
        libraries = ["libqola_{}.a".format(namespace)] if static else _unique([
            "{}_{}.so".format(namespace, _SOURCES[direction][0])
            for direction in directions
        ]),
    )
    cc_binary(
        name = name,
        srcs = [
            "convert.h",
            "main.cpp",
            "problem.h",
        ] + [_SOURCES[direction][1] for direction in directions],
        copts = _COPTS,
        linkopts = ["-lamdhip64"],
        local_defines = ["CONSUMER_" + direction.upper() for direction in directions],
        tags = tags,
        target_compatible_with = _ROCM,
        deps = [name + ".bundle"],
    )
    rocm_files(
        name = name + ".file",
        srcs = [name],
        tags = tags,
        visibility = ["//rules:tests"],
    )

def consumer_test(name, bundle, library, directions, manifest = None, namespace = None, static = False, tests = [], restricted = [], tags = []):
    """Tests which kernels the libraries of a bundle launch.

    Declares consumer_<name>, the program, and test_consumer_<name>.

    Args:
      name: name of the test, by default the manifest's too.
      bundle: label of a qola_bundle of all its libraries.
      library: label of one of them, whose plan.json predicts. The program does
        not see it.
      directions: directions whose entry points the program calls.
      manifest: name of the manifest; the rows of the table stand under it.
      namespace: the manifest's, where it is not its name.
      static: whether the bundle's archive is linked, instead of its libraries.
      tests: files of further tests that use the program.
      restricted: labels of the bundle's libraries as --@qola//:archs makes them,
        for tests that put them in place of the bundle's.
      tags: tags of all of it.
    """
    program = "consumer_" + name
    consumer_program(
        name = program,
        bundle = bundle,
        directions = directions,
        namespace = namespace or manifest or name,
        static = static,
        tags = tags,
    )
    native.filegroup(
        name = program + ".plan",
        srcs = [library],
        output_group = "plan",
        tags = tags,
        visibility = ["//rules:tests"],
    )
    pytest_test(
        name = "test_" + program,
        size = "small",
        files = ["test_consumer_table.py"] + tests,
        srcs = [
            ":consumer",
            "//tests/library:symbols",
        ],
        data = restricted + ["//:pyproject.toml"],
        env = {
            "QOLA_TEST_MANIFEST": manifest or name,
            "QOLA_TEST_RESTRICTED": " ".join(["$(rootpath {})".format(library) for library in restricted]),
        },
        paths = {
            "QOLA_TEST_AITER_TREE": "@aiter//:AITER.json",
            "QOLA_TEST_BUNDLE": bundle,
            "QOLA_TEST_FAKE_HIP": "@rules_hip//gfxemu/fake_hip",
            "QOLA_TEST_PLAN": program + ".plan",
            "QOLA_TEST_PROGRAM": program + ".file",
        },
        tags = ["no-remote"] + tags,
        deps = ["//gfxemu/fake_hip:python"],
    )
