"""python_headers: Python.h of the Python that repository rules run."""

load("//rules/private:finding.bzl", "finding")
load(":host_python.bzl", "host_python")

_BUILD = '''# Written by @qola//rules/private/repositories:python_headers.bzl.

load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]) + glob(["multiarch/**/*.h"], allow_empty = True),
    includes = ["include", "multiarch"],
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
    python = host_python(rctx)
    result = rctx.execute([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"])
    include = rctx.path(result.stdout.strip())
    if result.return_code != 0 or not include.get_child("Python.h").exists:
        fail(finding(
            "ToolchainError: no headers of Python",
            place = "QOLA_PYTHON" if rctx.getenv("QOLA_PYTHON") else "python3 on PATH",
            found = "no Python.h in {}".format(include),
            expected = "the headers of {}: a manifest asks for a module that Python imports".format(python),
            fix = "install them (Debian: apt-get install python3-dev), or set QOLA_PYTHON to a Python that has them",
        ))
    link_headers(rctx, include, "include")
    rctx.file("BUILD.bazel", _BUILD, executable = False)

python_headers = repository_rule(
    implementation = _python_headers_impl,
    doc = "Offers Python's headers as //:headers. Fetched only for manifests with a Python module.",
    environ = ["QOLA_PYTHON"],
)
