"""library_test: what a library holds, exports and needs, compared with its plan."""

load("//tests/support:pytest_test.bzl", "pytest_test")
load(":restricted.bzl", "restricted")

def library_test(name, library, module, archs = [], tags = []):
    """Tests a built library.

    Args:
      name: target name.
      library: label of a qola_library.
      module: its module (libmha_fwd).
      archs: build it restricted to these; by default as the manifest says.
      tags: tags of all of it.
    """
    if archs:
        restricted(
            name = name + ".restricted",
            archs = archs,
            library = library,
            tags = tags,
        )
        library = name + ".restricted"
    native.filegroup(
        name = name + ".plan",
        srcs = [library],
        output_group = "plan",
        tags = tags,
    )
    pytest_test(
        name = name,
        size = "medium",
        files = ["test_library.py"],
        srcs = [
            ":offload",
            ":symbols",
        ],
        data = ["//:pyproject.toml"],
        env = {
            "QOLA_TEST_ARCHS": " ".join(archs),
            "QOLA_TEST_MODULE": module,
        },
        paths = {
            "QOLA_TEST_LIBRARY": library,
            "QOLA_TEST_LLVM": "@rocm_sdk//:sdk/bin/llvm-nm",
            "QOLA_TEST_PLAN": name + ".plan",
            "QOLA_TEST_TREE": "@aiter//:AITER.json",
        },
        tags = tags,
        deps = [
            "//qola/bundle",
            "//qola_base/code_object",
        ],
    )
