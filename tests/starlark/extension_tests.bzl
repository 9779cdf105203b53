"""Unit tests of the module extension: which tag a repository is of."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("//rules:extensions.bzl", "repositories_of")

def _repositories(*modules):
    """Returns the declaring modules by repository, for modules of struct(name, is_root, tags)."""
    entries = [
        struct(module = module, tag = struct(name = tag))
        for module in modules
        for tag in module.tags
    ]
    return {name: [entry.module.name for entry in claims] for name, claims in repositories_of(entries).items()}

def _dependency(name, *tags):
    return struct(is_root = False, name = name, tags = tags)

def _repositories_test(ctx):
    """Prevents: a dependency's manifest replaces another of the same name, or fails the build of the root module."""
    env = unittest.begin(ctx)
    root = struct(is_root = True, name = "app", tags = ["left", "own"])
    unnamed = struct(is_root = True, name = "", tags = ["left"])
    dep, other = _dependency("dep", "left", "right"), _dependency("other.dep", "right")
    asserts.equals(env, {
        "app.left": ["app"],
        "app.own": ["app"],
        "dep.left": ["dep"],
        "dep.right": ["dep"],
        "left": ["app"],
        "other.dep.right": ["other.dep"],
        "own": ["app"],
        # Of none of them.
        "right": ["dep", "other.dep"],
    }, _repositories(dep, root, other))

    # As before, where nobody else has the name.
    asserts.equals(env, {"dep.left": ["dep"], "left": ["dep"], "dep.right": ["dep"], "right": ["dep"]}, _repositories(dep))
    asserts.equals(env, {"left": [""]}, _repositories(unnamed))

    # Two versions of a module, and one that declares a name twice.
    asserts.equals(env, {"other.dep.right": ["other.dep"] * 2, "right": ["other.dep"] * 2}, _repositories(other, other))
    asserts.equals(env, {"left": ["", ""]}, _repositories(struct(is_root = True, name = "", tags = ["left", "left"])))
    return unittest.end(env)

repositories_test = unittest.make(_repositories_test)

def extension_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, repositories_test)
