"""Unit tests of what a PyTorch is taken for."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")

# buildifier: disable=bzl-visibility
load("//rules/private/repositories:module_python.bzl", "base_program")
load("//rules/torch:torch_repository.bzl", "defines", "why_no_hip")

def _torch(**values):
    return {"fp4": False, "hip": "7.1.52802", "pybind11": {}, "version": "2.9.1+rocm7.1"} | values

def _hip_test(ctx):
    """Prevents: a module with two HIP runtimes, or a ROCm refused that is of another minor version alone."""
    env = unittest.begin(ctx)
    asserts.equals(env, None, why_no_hip("QOLA_TORCH", _torch(), "7.2.53211"))
    asserts.equals(env, None, why_no_hip("QOLA_TORCH", _torch(), ""))
    other = why_no_hip("QOLA_TORCH", _torch(hip = "6.4.43484", version = "2.8.0"), "7.2.53211")
    asserts.true(env, "  found:    PyTorch 2.8.0 for HIP 6.4.43484\n  expected: one for HIP 7," in other, other)
    none = why_no_hip("QOLA_TORCH", _torch(hip = ""), "7.2.53211")
    asserts.true(env, "a PyTorch without HIP" in none, none)
    return unittest.end(env)

def _defines_test(ctx):
    """Prevents: a module that takes PyTorch's types for a stranger's."""
    env = unittest.begin(ctx)
    asserts.equals(env, [], defines(_torch()))
    found = defines(_torch(fp4 = True, pybind11 = {"COMPILER_TYPE": "_gcc"}))
    asserts.equals(env, ["TORCH_Float4_e2m1fn_x2", "PYBIND11_COMPILER_TYPE=\\\"_gcc\\\""], found)
    return unittest.end(env)

def _base_program_test(ctx):
    """Prevents: modules of a virtual environment for the Python of bazelw's private tree, of another version."""
    env = unittest.begin(ctx)
    venv = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n"
    asserts.equals(env, struct(path = "/usr/bin/python3.11", version = (3, 11)), base_program(venv))
    uv = "home = /opt/bin\nversion_info = 3.12.1\n"
    asserts.equals(env, "/opt/bin/python3.12", base_program(uv).path)
    for unknown in ["", "home = bin\nversion = 3.11.2", "home = /usr/bin", "home = /usr/bin\nversion = new.er"]:
        asserts.equals(env, None, base_program(unknown))
    return unittest.end(env)

base_program_test = unittest.make(_base_program_test)
hip_test = unittest.make(_hip_test)
defines_test = unittest.make(_defines_test)

def torch_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, base_program_test, hip_test, defines_test)
