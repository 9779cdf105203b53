"""python_headers: headers of Python and pybind11 for modules that Python imports without PyTorch."""

load("//rules/private:finding.bzl", "finding")
load(":module_python.bzl", "module_python", "probe_torch", "pybind11_defines", "run_module_python")

_BUILD = '''# Written by @qola//rules/private/repositories:python_headers.bzl.

load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]) + glob(["multiarch/**/*.h"], allow_empty = True),
    includes = ["include", "multiarch"],
    visibility = ["//visibility:public"],
)
'''

# Types that one module registers are known to another only if both have the same pybind11.
_TORCH_PYBIND11 = '''
cc_library(
    name = "pybind11",
    hdrs = glob(["pybind11/**/*.h"]),
    defines = {defines},
    includes = ["."],
    visibility = ["//visibility:public"],
)
'''

_OWN_PYBIND11 = '''
alias(
    name = "pybind11",
    actual = "@qola_pip_pybind11//:headers",
    visibility = ["//visibility:public"],
)
'''

def link_headers(rctx, include, name):
    """Links Python's headers into a repository.

    Args:
      rctx: the repository context.
      include: the directory that has Python.h.
      name: what to call it; a directory multiarch may come beside it.
    """
    rctx.watch(include.get_child("patchlevel.h"))
    rctx.symlink(include, name)

    # Debian's pyconfig.h includes that of the machine's kind by a path below
    # /usr/include, which the compiler does not look into.
    multiarch = include.dirname.get_child("x86_64-linux-gnu", include.basename)
    if multiarch.exists:
        rctx.symlink(multiarch, "multiarch/x86_64-linux-gnu/" + include.basename)

def _python_headers_impl(rctx):
    python = module_python(rctx)
    result = run_module_python(rctx, python, ["-I", "-c", "import sysconfig; print(sysconfig.get_path('include'))"])
    include = rctx.path(result.stdout.strip()) if result.return_code == 0 else None
    if not include or not include.get_child("Python.h").exists:
        fail(finding(
            "ToolchainError: no headers of Python",
            place = python.name,
            found = "no Python.h in {}".format(include) if include else result.stderr.strip() or "exit code {}".format(result.return_code),
            expected = "the headers of this Python: a manifest asks for a module that it imports",
            fix = "install them (Debian: apt-get install python3-dev), or set QOLA_TORCH to a Python that has them",
        ))
    link_headers(rctx, include, "include")
    torch = probe_torch(rctx, python)

    # One that cannot be imported is an error of torch modules alone.
    root = rctx.path(torch["root"]).get_child("include", "pybind11") if type(torch) == "dict" and torch else None
    if root and root.get_child("pybind11.h").exists:
        rctx.watch(root.get_child("detail", "common.h"))
        rctx.symlink(root, "pybind11")
        build = _BUILD + _TORCH_PYBIND11.format(defines = repr(pybind11_defines(torch)))
    else:
        build = _BUILD + _OWN_PYBIND11
    rctx.file("BUILD.bazel", build, executable = False)

python_headers = repository_rule(
    implementation = _python_headers_impl,
    configure = True,
    doc = """Offers headers as //:headers (Python's) and //:pybind11 (PyTorch's if there is one, else the pinned one).

They are those of the Python that module_python.bzl finds. Fetched only for manifests with a Python module.""",
    environ = ["QOLA_PYTHON", "QOLA_TORCH"],
)
