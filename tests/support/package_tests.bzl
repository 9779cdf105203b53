"""package_tests: the pytest files of a directory as Bazel tests."""

load("@rules_python//python:defs.bzl", "py_test")
load(":pytest_test.bzl", "quick_and_thorough")

def _further_tests():
    """The test_*.py files of the package that no py_test above has, without their ending."""
    declared = [
        source.removeprefix(":")
        for rule in native.existing_rules().values()
        if rule["kind"] == "py_test"
        for source in rule["srcs"]
    ]
    return [file[:-len(".py")] for file in native.glob(["test_*.py"]) if file not in declared]

def package_tests(name, deps, tests = [], data = {}, apart = [], thorough = [], thorough_cases = [], env = {}, deps_of = {}):
    """Declares tests of the package's test_*.py files that need nothing built, so that no file is forgotten.

    Args:
      name: the package, and its test: one process for all files that are not in `apart`, since
        starting a process takes a second.
      deps: the package's library; a test sees no other part of qola.
      deps_of: further libraries by test: what the others do not import must not run them again.
      tests: their files' names, without ending; by default all that nothing above in the BUILD file has.
      data: further files by test.
      apart: tests that are targets of their own, by their files' names: they run CK's generators, pip
        or git and may wait for a busy machine, or read what changes more often than the package.
      thorough: further ones, tagged thorough.
      thorough_cases: those of `apart` of which some cases have the marker thorough: these are a target
        of their own, with _thorough in its name.
      env: further variables by test.
    """
    helpers = native.glob(["*.py"], allow_empty = True, exclude = ["test_*.py"])
    every = tests or _further_tests()
    together = [test for test in every if test not in apart + thorough]
    targets = {test: ([test], "", []) for test in apart} | ({name: (together, "", [])} if together else {})
    targets |= {test: ([test], "", ["thorough"]) for test in thorough}
    for test in thorough_cases:
        targets |= quick_and_thorough(test, [test])
    for target, (tests, cases, tags) in targets.items():
        files = [test + ".py" for test in tests]
        variables = {}
        for test in tests:
            variables = variables | env.get(test, {})
        py_test(
            name = target,
            size = "medium",
            timeout = "long",
            srcs = helpers + files + ["//tests/support:shared"],
            data = {
                label: None
                for label in [label for test in tests for label in data.get(test, [])] + [
                    "//:pyproject.toml",
                    "@aiter//:AITER.json",
                ]
            }.keys(),
            env = {
                "PYTEST_CASES": cases,
                "PYTEST_FILES": " ".join(["$(rootpath {})".format(file) for file in files]),
                "QOLA_TEST_AITER_TREE": "$(rootpath @aiter//:AITER.json)",
            } | variables,
            imports = ["/".join([".." for _ in native.package_name().split("/")])],
            # An empty __init__.py that Bazel makes would be written through the link that a sandbox used before has there,
            # into the checkout.
            legacy_create_init = 0,
            main = "//tests/support:pytest_main.py",
            # The tree stands for its digest: AITER.json is the declared input, the
            # 5,900 files beside it are read where they were fetched.
            tags = [
                "no-remote",
                "python",
            ] + tags,
            deps = {
                label: None
                for label in deps + ["@qola_pip_dev//:packages"] + [label for test in tests for label in deps_of.get(test, [])]
            }.keys(),
        )
