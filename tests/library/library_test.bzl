"""library_test: what a library holds, exports and needs, compared with its plan."""

load("@rules_python//python:defs.bzl", "py_test")
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
    py_test(
        name = name,
        size = "medium",
        srcs = [
            "test_library.py",
            ":symbols",
            "//tests/python:pytest_main",
        ],
        data = [
            library,
            name + ".plan",
            "//:pyproject.toml",
            "@aiter//:AITER.json",
            "@qola_rocm_sdk//:sdk/bin/llvm-nm",
            "@qola_rocm_sdk//:sdk_tools",
        ],
        env = {
            "PYTEST_FILES": "$(rootpath test_library.py)",
            "QOLA_TEST_ARCHS": " ".join(archs),
            "QOLA_TEST_LIBRARY": "$(rootpath {})".format(library),
            "QOLA_TEST_MODULE": module,
            "QOLA_TEST_PLAN": "$(rootpath {}.plan)".format(name),
            "QOLA_TEST_LLVM": "$(rootpath @qola_rocm_sdk//:sdk/bin/llvm-nm)",
            "QOLA_TEST_TREE": "$(rootpath @aiter//:AITER.json)",
        },
        imports = ["../.."],
        main = "pytest_main.py",
        tags = tags,
        deps = ["@qola_pip_dev//:packages"],
    )
