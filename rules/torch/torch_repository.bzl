"""torch_repository: the PyTorch that torch modules are built for: headers, libraries and what it says of itself."""

load("@rules_hip//lib:finding.bzl", "finding")
load("//rules/private:docs.bzl", "docs_url")
load("//rules/private/repositories:module_python.bzl", "link_headers", "module_python", "probe_torch", "pybind11_defines")

_HEADER = "# Written by @qola//rules/torch:torch_repository.bzl.\n\n"

_BUILD = _HEADER + '''load("@qola//rules/private:torch_source.bzl", "precompiled_torch")
load("@qola//rules/torch:torch_info.bzl", "torch_info")
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["lib/*"], exclude = {refused}))

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/**", "multiarch/**/*.h", "python/**/*.h", "version/*.h"],
        allow_empty = True,
    ),
    defines = ["_GLIBCXX_USE_CXX11_ABI={abi}"] + {defines},
    includes = ["include", "include/torch/csrc/api/include", "multiarch", "python", "version"],
)

torch_info(
    name = "info",
    interpreter = "python.sh",
    python = "{python}",
    version = "{version}",
)

precompiled_torch()
'''

# What runs it, for actions: it may be a link in a virtual environment, which the name leads to.
_PYTHON = """#!/bin/bash
{command} -I "$@"
"""

_HIP = '''
alias(
    name = "hip",
    actual = ":headers",
)
'''

_NO_HIP = '''
load("@qola//rules/torch:torch_info.bzl", "no_torch")

[
    no_torch(
        name = name,
        message = {message},
    )
    for name in ["hip"] + {libraries}
]
'''

_NONE = _HEADER + '''load("@qola//rules/private:torch_source.bzl", "PRECOMPILED")
load("@qola//rules/torch:torch_info.bzl", "no_torch")

[
    no_torch(
        name = name,
        message = {message},
        visibility = ["//visibility:public"],
    )
    for name in ["headers", "hip", "info"] + PRECOMPILED + {libraries}
]
'''

# What modules are linked with; those of HIP are in a PyTorch for ROCm alone.
LIBRARIES = ["libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"]
FURTHER_LIBRARIES = ["libc10_hip.so", "libtorch_hip.so"]

def _write_constants(rctx, found):
    """Writes what BUILD files may ask: whether there is a PyTorch, and which."""
    constants = {key: value for key, value in found.items() if key not in ["python_include", "root"]}
    rctx.file("torch.bzl", _HEADER + "TORCH = {}\n".format(repr(constants)), executable = False)

def defines(found):
    """What AITER's build defines for a PyTorch: where it has the type, and how its pybind11 was compiled."""
    return (["TORCH_Float4_e2m1fn_x2"] if found["fp4"] else []) + pybind11_defines(found)

def why_no_hip(place, found, compiler):
    """Says why modules that are to run cannot be linked with a PyTorch.

    Args:
      place: where the PyTorch is named.
      found: what it says of itself.
      compiler: version of HIP of the ROCm that compiles.

    Returns:
      The text of an error, or None.
    """
    if not found["hip"]:
        return finding(
            "ToolchainError: a PyTorch without HIP",
            place = place,
            found = "PyTorch " + found["version"],
            expected = "a PyTorch for ROCm, which torch modules run with",
            fix = "install one, or check sources and link alone: --@qola//:torch=cpu_check ({})".format(docs_url("guide/pybind.md")),
        )

    # Another major version is another library: both would be in one process, with streams of their own.
    if not compiler or compiler.partition(".")[0] == found["hip"].partition(".")[0]:
        return None
    return finding(
        "ToolchainError: a PyTorch for another HIP",
        place = place,
        found = "PyTorch {} for HIP {}".format(found["version"], found["hip"]),
        expected = "one for HIP {}, as the ROCm that compiles has it".format(compiler.partition(".")[0]),
        fix = "install one, or compile with that PyTorch's ROCm: QOLA_ROCM=/opt/rocm ({})".format(docs_url("guide/bazel.md#rocm")),
    )

def _stand_in(rctx, place, found, expected, fix):
    """Writes a repository whose targets fail with a message about the missing PyTorch. Other targets still build."""
    title = "ToolchainError: no PyTorch to build for"

    # What was not there cannot be watched.
    fix += "; then: bazel fetch --force --configure"
    message = finding(title, place = place, found = found, expected = expected, fix = fix)
    libraries = ["lib/" + name for name in LIBRARIES + FURTHER_LIBRARIES]
    _write_constants(rctx, {})
    rctx.file("BUILD.bazel", _NONE.format(libraries = repr(libraries), message = repr(message)), executable = False)

def _torch_repository_impl(rctx):
    python = module_python(rctx)
    place = "torch of {}".format(python.name)
    found = probe_torch(rctx, python)
    if type(found) == "string":
        _stand_in(
            rctx,
            place,
            found = found,
            expected = "a PyTorch that {} imports".format(python.name),
            fix = "reinstall it, or set QOLA_TORCH to a Python that has one",
        )
        return
    if not found:
        _stand_in(
            rctx,
            place,
            found = "no package torch",
            expected = "the PyTorch that modules in mode pybind are built for",
            fix = "install it, or set QOLA_TORCH to a Python that has it, such as that of a virtual environment",
        )
        return
    include = rctx.path(found["python_include"])
    if not include.get_child("Python.h").exists:
        _stand_in(
            rctx,
            place,
            found = "no Python.h in {}".format(include),
            expected = "the headers of the Python that has the PyTorch",
            fix = "install them (Debian: apt-get install python3-dev), or set QOLA_TORCH to a Python that has them",
        )
        return
    _write_constants(rctx, found)
    root = rctx.path(found["root"])
    rctx.watch(root.get_child("version.py"))
    rctx.symlink(root.get_child("include"), "include")
    rctx.symlink(root.get_child("lib"), "lib")
    link_headers(rctx, include, "python")
    rctx.file(
        "version/qola_torch_version.h",
        "#pragma once\n#define QOLA_TORCH_VERSION \"{}\"\n".format(found["version"]),
        executable = False,
    )
    rctx.file("python.sh", _PYTHON.format(command = python.command))
    further = ["lib/" + name for name in FURTHER_LIBRARIES]
    why = why_no_hip(place, found, json.decode(rctx.read(rctx.attr.rocm))["hip_version"])
    hip = _NO_HIP.format(libraries = repr(further), message = repr(why)) if why else _HIP
    build = _BUILD.format(
        abi = found["cxx11_abi"],
        defines = repr(defines(found)),
        python = found["python"],
        refused = repr(further if why else []),
        version = found["version"],
    )
    rctx.file("BUILD.bazel", build + hip, executable = False)

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    attrs = {"rocm": attr.label(default = "@rocm//:rocm.json", doc = "Versions of the ROCm that compiles.")},
    configure = True,
    doc = """Offers the PyTorch of the Python that $QOLA_TORCH names, or else of the one that repository rules run.

`qola build` sets the variable to its own Python. With Python's headers. Fetched only where a torch module is built.""",
    environ = ["QOLA_PYTHON", "QOLA_TORCH"],
)
