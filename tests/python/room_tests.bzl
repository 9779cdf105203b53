"""room_tests: the pytest files of a directory as Bazel tests."""

load("@rules_python//python:defs.bzl", "py_test")

# Of //tests/python, for all.
_SHARED = [
    "conftest.py",
    "folders.py",
    "later_tree.py",
    "plans.py",
    "pytest_main.py",
]

# What pytest chooses by the marker thorough.
_QUICK = "not thorough"
_LONG = "thorough"

def room_tests(name, deps, data = {}, medium = [], thorough = [], thorough_cases = [], env = {}):
    """Declares a test for each test_*.py of the package, so that no file is forgotten.

    Args:
      name: the room.
      deps: the room's library; a test sees no other part of qola.
      data: further files by test.
      env: further variables by test.
      medium: tests that run CK's generators, pip or git and may wait for a busy machine.
      thorough: those of them that are tagged thorough.
      thorough_cases: those of which some cases have the marker thorough: these are a target of
        their own, with _thorough in its name.
    """
    helpers = native.glob(
        ["*.py"],
        allow_empty = True,
        exclude = ["test_*.py"] + (_SHARED if native.package_name() == "tests/python" else []),
    )
    for file in native.glob(["test_*.py"]):
        test = file[:-len(".py")]
        targets = {test: ("", ["thorough"] if test in thorough else [])}
        if test in thorough_cases:
            targets = {test: (_QUICK, []), test + "_thorough": (_LONG, ["thorough"])}
        for target, (cases, tags) in targets.items():
            py_test(
                name = target,
                size = "medium" if test in medium else "small",
                timeout = "long" if test in medium else "short",
                srcs = helpers + [file] + ["//tests/python:" + shared for shared in _SHARED],
                data = data.get(test, []) + [
                    "//:pyproject.toml",
                    "@aiter//:AITER.json",
                ],
                env = {
                    "PYTEST_CASES": cases,
                    "PYTEST_FILES": "$(rootpath {})".format(file),
                    "QOLA_TEST_AITER_TREE": "$(rootpath @aiter//:AITER.json)",
                } | env.get(test, {}),
                imports = ["../../.."],
                main = "//tests/python:pytest_main.py",
                # The tree stands for its digest: AITER.json is the declared input, the
                # 5,900 files beside it are read where they were fetched.
                tags = ["no-remote"] + tags,
                deps = deps + ["@qola_pip_dev//:packages"],
            )
    native.filegroup(
        name = "sources",
        srcs = native.glob(["*.py"]),
        visibility = ["//tests/python:__pkg__"],
    )
