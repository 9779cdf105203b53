"""Finds the Python that a build's modules are for, and describes its PyTorch."""

load("@bazel_skylib//lib:shell.bzl", "shell")
load(":host_python.bzl", "host_python")

# Python looks for its virtual environment beside the name that it is started by.
_STARTED_AS = "exec -a {name} {program}"

def base_program(pyvenv):
    """Returns the Python that a virtual environment was made of.

    Args:
      pyvenv: text of its pyvenv.cfg.

    Returns:
      struct(path, version), the version as (3, 11); None if the file lacks either.
    """
    keys = {}
    for line in pyvenv.splitlines():
        key, _, value = line.partition("=")
        keys[key.strip()] = value.strip()

    # venv says `version`, virtualenv and uv say `version_info`.
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

    # In bazelw's private tree a link to /usr/bin/python3 leads to the tree's Python, which has another version. The
    # machine's is there as python3.11.
    return _STARTED_AS.format(name = shell.quote(str(python)), program = shell.quote(base.path))

def module_python(rctx):
    """Finds the Python that imports what is built: that of QOLA_TORCH, else the one that repository rules run.

    `qola build` sets QOLA_TORCH to its own Python unless it is set.

    Args:
      rctx: the repository context.

    Returns:
      struct(command, name): the shell command that starts it, and its name in messages.
    """
    named = rctx.getenv("QOLA_TORCH")
    python = named or host_python(rctx)
    return struct(command = _command(rctx, python), name = str(python))

def run_module_python(rctx, python, arguments):
    """Runs a Python that module_python returned.

    Args:
      rctx: the repository context.
      python: the Python.
      arguments: its arguments.

    Returns:
      What rctx.execute returns.
    """
    return rctx.execute(["bash", "-c", python.command + ' "$@"', "bash"] + arguments)

def probe_torch(rctx, python):
    """Describes the PyTorch of a Python.

    Args:
      rctx: the repository context.
      python: what module_python returned.

    Returns:
      What rules/torch/probe.py prints, {} without a PyTorch; or the error, a string.
    """
    probe = rctx.path(Label("//rules/torch:probe.py"))
    rctx.watch(probe)

    # -I: the answer must not depend on the directory that Bazel runs in.
    result = run_module_python(rctx, python, ["-I", str(probe)])
    return json.decode(result.stdout.strip()) if result.return_code == 0 else result.stderr.strip()

def pybind11_defines(found):
    """Returns the macros that give a module the type registry of PyTorch's pybind11."""
    return ["PYBIND11_{}=\\\"{}\\\"".format(name, value) for name, value in found["pybind11"].items()]
