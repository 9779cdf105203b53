"""The Python that a build's modules are for: its interpreter, its headers and its PyTorch."""

load("@bazel_skylib//lib:shell.bzl", "shell")
load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//repositories:host_python.bzl", "host_python")

# Python finds its virtual environment by the name that it is started under.
_STARTED_AS = "exec -a {name} {program}"

def base_program(pyvenv):
    """Returns the base interpreter of a virtual environment.

    Args:
      pyvenv: text of its pyvenv.cfg.

    Returns:
      struct(path, version), the version as (3, 11); None if the file lacks either.
    """
    keys = {}
    for line in pyvenv.splitlines():
        key, _, value = line.partition("=")
        keys[key.strip()] = value.strip()

    # venv writes `version`; virtualenv and uv write `version_info`.
    version = (keys.get("version") or keys.get("version_info", "")).split(".")[:2]
    home = keys.get("home", "")
    if not home.startswith("/") or len(version) != 2 or [part for part in version if not part.isdigit()]:
        return None
    return struct(path = "{}/python{}.{}".format(home, *version), version = tuple([int(part) for part in version]))

def _version(rctx, command):
    result = rctx.execute(command + ["-c", "import sys; print(*sys.version_info[:2])"])
    return tuple([int(part) for part in result.stdout.strip().split(" ")]) if result.return_code == 0 else None

def _command(rctx, python):
    """Returns the shell command that starts a Python."""
    path = rctx.path(python)
    pyvenv = path.dirname.dirname.get_child("pyvenv.cfg")
    base = base_program(rctx.read(pyvenv)) if pyvenv.exists else None
    if not base or _version(rctx, [python]) == base.version:
        return "exec " + shell.quote(str(python))

    # In bazelw's private tree a link to /usr/bin/python3 resolves to the tree's Python of another version. The
    # machine's is available as python3.11.
    return _STARTED_AS.format(name = shell.quote(str(python)), program = shell.quote(base.path))

def module_python(rctx):
    """Finds the Python that imports the built modules: QOLA_TORCH, else the Python of repository rules.

    `qola build` sets QOLA_TORCH to its own Python if it is not set.

    Args:
      rctx: the repository context.

    Returns:
      struct(command, name): the shell command that starts it, and its name in messages.
    """
    named = rctx.getenv("QOLA_TORCH")
    python = named or host_python(rctx)
    return struct(command = _command(rctx, python), name = str(python))

def run_module_python(rctx, python, arguments):
    """Runs a Python, and returns the result of rctx.execute.

    Args:
      rctx: the repository context.
      python: result of module_python.
      arguments: arguments of the interpreter.
    """
    return rctx.execute(["bash", "-c", python.command + ' "$@"', "bash"] + arguments)

def probe_torch(rctx, python):
    """Describes the PyTorch of a Python.

    Args:
      rctx: the repository context.
      python: result of module_python.

    Returns:
      The output of rules/torch/probe.py, {} without a PyTorch; or the error, a string.
    """
    probe = rctx.path(Label("//rules/torch:probe.py"))
    rctx.watch(probe)

    # -I: the result must not depend on the directory that Bazel runs in.
    result = run_module_python(rctx, python, ["-I", str(probe)])
    return json.decode(result.stdout.strip()) if result.return_code == 0 else result.stderr.strip()

def pybind11_defines(found):
    """Returns the macros that give a module the type registry of PyTorch's pybind11."""
    return ["PYBIND11_{}=\\\"{}\\\"".format(name, value) for name, value in found["pybind11"].items()]

_BUILD = '''# Written by @qola//rules/private/repositories:module_python.bzl.

load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]) + glob(["multiarch/**/*.h"], allow_empty = True),
    includes = ["include", "multiarch"],
    visibility = ["//visibility:public"],
)
'''

# Modules share registered types only if both use the same pybind11.
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
      name: name of the link; a directory multiarch may be added next to it.
    """
    rctx.watch(include.get_child("patchlevel.h"))
    rctx.symlink(include, name)

    # Debian's pyconfig.h includes the architecture's by a path below
    # /usr/include, where the compiler does not search.
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
            expected = "the headers of this Python, which imports a module of the manifest",
            fix = "install them (Debian: apt-get install python3-dev), or set QOLA_TORCH to a Python that has them",
        ))
    link_headers(rctx, include, "include")
    torch = probe_torch(rctx, python)

    # A PyTorch that cannot be imported is an error only for torch modules.
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

They belong to the Python of module_python. Fetched only for manifests with a Python module.""",
    environ = ["QOLA_PYTHON", "QOLA_TORCH"],
)
