"""torch_repository: the PyTorch that torch modules are built for: headers, libraries and what it says of itself."""

load("//rules/private:finding.bzl", "finding")
load("//rules/private/repositories:host_python.bzl", "host_python")
load("//rules/private/repositories:python_headers.bzl", "link_headers")

_HEADER = "# Written by @qola//rules/torch:torch_repository.bzl.\n\n"

_BUILD = _HEADER + '''load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(glob(["lib/*"]))

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/**", "multiarch/**/*.h", "python/**/*.h", "version/*.h"],
        allow_empty = True,
    ),
    defines = ["_GLIBCXX_USE_CXX11_ABI={abi}"],
    includes = ["include", "include/torch/csrc/api/include", "multiarch", "python", "version"],
)
'''

_HIP = '''
alias(
    name = "hip",
    actual = ":headers",
)
'''

_NO_HIP = '''
load("@qola//rules/torch:no_torch.bzl", "no_torch")

no_torch(
    name = "hip",
    message = {message},
)
'''

_NONE = _HEADER + '''load("@qola//rules/torch:no_torch.bzl", "no_torch")

[
    no_torch(
        name = name,
        message = {message},
        visibility = ["//visibility:public"],
    )
    for name in ["headers", "hip"] + {libraries}
]
'''

# What modules are linked with; those of HIP are in a PyTorch for ROCm alone.
LIBRARIES = ["libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"]
FURTHER_LIBRARIES = ["libc10_hip.so", "libtorch_hip.so"]

def _torch_repository_impl(rctx):
    named = rctx.getenv("QOLA_TORCH")
    python = named or host_python(rctx)
    probe = rctx.path(Label("//rules/torch:probe.py"))
    rctx.watch(probe)

    # -I: PyTorch's answer must not depend on the directory that Bazel runs in.
    result = rctx.execute([python, "-I", probe])
    found = json.decode(result.stdout.strip()) if result.return_code == 0 else None
    if found == None:
        fail(finding(
            "ToolchainError: this PyTorch cannot be imported",
            place = "QOLA_TORCH" if named else "torch of {}".format(python),
            found = result.stderr.strip(),
            expected = "a PyTorch that {} imports".format(python),
            fix = "reinstall it, or set QOLA_TORCH to a Python that has one",
        ))
    rctx.file("torch.bzl", _HEADER + "TORCH = {}\n".format(repr({
        key: value
        for key, value in found.items()
        if key not in ["python_include", "root"]
    })), executable = False)
    if not found:
        message = finding(
            "ToolchainError: no PyTorch",
            place = "QOLA_TORCH" if named else "torch of {}".format(python),
            found = "no package torch",
            expected = "the PyTorch that modules in mode pybind are built for",
            fix = "install it, or set QOLA_TORCH to a Python that has it, such as that of a virtual environment",
        )
        libraries = ["lib/" + name for name in LIBRARIES + FURTHER_LIBRARIES]
        rctx.file("BUILD.bazel", _NONE.format(libraries = repr(libraries), message = repr(message)), executable = False)
        return
    root = rctx.path(found["root"])
    rctx.watch(root.get_child("version.py"))
    rctx.symlink(root.get_child("include"), "include")
    rctx.symlink(root.get_child("lib"), "lib")
    python_include = rctx.path(found["python_include"])
    if not python_include.get_child("Python.h").exists:
        fail(finding(
            "ToolchainError: no headers of Python",
            place = "QOLA_TORCH" if named else str(python),
            found = "no Python.h in {}".format(python_include),
            expected = "the headers of the Python that has the PyTorch",
            fix = "install them (Debian: apt-get install python3-dev), or set QOLA_TORCH to a Python that has them",
        ))
    link_headers(rctx, python_include, "python")
    rctx.file(
        "version/qola_torch_version.h",
        "#pragma once\n#define QOLA_TORCH_VERSION \"{}\"\n".format(found["version"]),
        executable = False,
    )
    hip = _HIP if found["hip"] else _NO_HIP.format(message = repr(finding(
        "ToolchainError: a PyTorch without HIP",
        place = "QOLA_TORCH" if named else "torch of {}".format(python),
        found = "PyTorch " + found["version"],
        expected = "a PyTorch for ROCm, which torch modules run with",
        fix = "install one, or check sources and link alone: --@qola//:torch=cpu_check (docs/guide/pybind.md)",
    )))
    rctx.file("BUILD.bazel", _BUILD.format(abi = found["cxx11_abi"]) + hip, executable = False)

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    configure = True,
    doc = """Offers the PyTorch of the Python that $QOLA_TORCH names, or else of the one that repository rules run.

With Python's headers. Fetched only where a torch module is built.""",
    environ = ["QOLA_PYTHON", "QOLA_TORCH"],
)
