"""pytest_test: one pytest file as a Bazel test."""

load("@rules_python//python:defs.bzl", "py_test")

def pytest_test(name, data = [], env = {}, **kwargs):
    """Runs <name>.py with pytest against the real AITER tree.

    Args:
      name: name of the test, and of its file without the suffix.
      data: further files.
      env: further environment variables.
      **kwargs: further attributes of py_test.
    """
    py_test(
        name = name,
        srcs = [name + ".py", "conftest.py", "pytest_main.py"],
        data = data + [
            "//:LICENSE",
            "//:pyproject.toml",
            "//docs:all_files",
            "//manifests:all_files",
            "//tests/golden:all_files",
            "@aiter//:AITER.json",
        ],
        env = env | {
            "PYTEST_FILES": "$(rootpath {}.py)".format(name),
            "QOLA_TEST_AITER_TREE": "$(rootpath @aiter//:AITER.json)",
        },
        main = "pytest_main.py",
        # The tree stands for its digest: AITER.json is the declared input, the
        # 5,900 files beside it are read where they were fetched.
        tags = ["no-remote"],
        deps = [
            "//qola",
            "//qola/bundle:lib",
            "@qola_pip_dev//:packages",
        ],
        **kwargs
    )
