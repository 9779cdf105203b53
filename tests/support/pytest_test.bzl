"""pytest_test: files of pytest tests as a Bazel test."""

load("@rules_python//python:defs.bzl", "py_test")

# What a program of the SDK reads or runs, by the program that a test is told of.
_SDK = {
    "@rocm_sdk//:sdk/bin/clang++": [
        "@rocm_sdk//:sdk_compiler",
        "@rocm_sdk//:sdk_linker",
    ],
    "@rocm_sdk//:sdk/bin/llvm-nm": ["@rocm_sdk//:sdk_tools"],
}

def quick_and_thorough(name, tests):
    """The targets of tests of which some cases have the marker thorough.

    Args:
      name: of the quick one; _thorough is behind it in the other's.
      tests: what each target has.

    Returns:
      dict from a target to what it has, the marker expression that pytest chooses by, and tags.
    """
    return {name: (tests, "not thorough", []), name + "_thorough": (tests, "thorough", ["thorough"])}

def pytest_test(
        name,
        files = [],
        srcs = [],
        data = [],
        paths = {},
        env = {},
        deps = [],
        tags = [],
        thorough_cases = False,
        thorough_paths = {},
        **kwargs):
    """Declares a test.

    Args:
      name: target name.
      files: the test's files; by default <name>.py.
      srcs: other sources that it imports.
      data: files that it reads.
      paths: labels of files that it reads, by the variable that names each.
      env: further variables.
      deps: libraries, beside those for development.
      tags: tags.
      thorough_cases: some cases have the marker thorough: these are a test of their own, with _thorough
        in its name.
      thorough_paths: as `paths`, for these cases alone: a quick run does not build them.
      **kwargs: further attributes of py_test.
    """
    files = files or [name + ".py"]
    targets = quick_and_thorough(name, files) if thorough_cases else {name: (files, "", [])}
    for target, (_, cases, more) in targets.items():
        given = paths | (thorough_paths if "thorough" in more else {})
        read = data + given.values()
        for label in given.values():
            read = read + _SDK.get(label, [])
        py_test(
            name = target,
            srcs = files + srcs + ["//tests/support:pytest_main"],
            data = {label: None for label in read}.keys(),
            env = {"PYTEST_FILES": " ".join(["$(rootpath {})".format(file) for file in files])} |
                  {"PYTEST_CASES": cases} |
                  {variable: "$(rootpath {})".format(label) for variable, label in given.items()} |
                  env,
            imports = ["/".join([".." for _ in native.package_name().split("/")])],
            # An empty __init__.py that Bazel makes would be written through the link that a sandbox used before has there,
            # into the checkout.
            legacy_create_init = 0,
            main = "pytest_main.py",
            tags = tags + more,
            deps = deps + ["@qola_pip_dev//:packages"],
            **kwargs
        )
