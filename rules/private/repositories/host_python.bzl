"""Runs qola's Python in a repository rule."""

load("//rules/private:finding.bzl", "finding")
load(":progress.bzl", "say")

# What a user's pip configuration may say about installing into their own
# environment, and what --target or a download cannot be combined with. Where
# packages come from (index, proxy, certificates) stays theirs.
PIP_ENVIRONMENT = {
    "PIP_CONSTRAINT": "",
    "PIP_NO_BINARY": "",
    "PIP_PREFIX": "",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_TARGET": "",
    "PIP_USER": "0",
}

# qola's Python is written for these and newer; tests run it on 3.10 to 3.14.
_MINIMUM = (3, 10)

def host_python(rctx):
    """Finds the Python that repository rules run.

    Args:
      rctx: the repository or module context.

    Returns:
      Path of an interpreter of at least the minimum version.
    """
    named = rctx.getenv("QOLA_PYTHON")
    python = named or rctx.which("python3")
    if not python:
        fail(finding(
            "ToolchainError: no Python",
            place = "PATH",
            found = "no python3",
            expected = "Python {}.{} or newer".format(*_MINIMUM),
            fix = "install python3, or set QOLA_PYTHON to an interpreter",
        ))
    result = rctx.execute([python, "-c", "import sys; print(*sys.version_info[:2])"])
    version = tuple([int(n) for n in result.stdout.strip().split(" ")]) if result.return_code == 0 else ()
    if version < _MINIMUM:
        fail(finding(
            "ToolchainError: this Python cannot run qola",
            place = "QOLA_PYTHON" if named else "python3 on PATH",
            found = str(python) + (" is version " + ".".join([str(n) for n in version]) if version else ": " + result.stderr.strip()),
            expected = "Python {}.{} or newer".format(*_MINIMUM),
            fix = "set QOLA_PYTHON to such an interpreter",
        ))
    return python

# What the runtime packages of Python are in, for rules that run what imports them.
PACKAGES_ATTRS = {
    "python_packages": attr.label(default = "@qola_pip_runtime//:requirements.txt", doc = "What qola imports."),
}

def _environment(rctx, root, packages):
    site = [str(rctx.path(requirements).dirname.get_child("site")) for requirements in packages]
    return PIP_ENVIRONMENT | {
        # Generators iterate over sets in places; a plan must not depend on it.
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": ":".join([str(root)] + site),
        "PYTHONSAFEPATH": "1",
    }

def _words(options):
    words = []
    for name, value in options.items():
        if value == True:
            words.append("--" + name)
        elif type(value) == "list":
            words += ["--{}={}".format(name, item) for item in value]
        elif value != None and value != False:
            words.append("--{}={}".format(name, value))
    return words

def run_qola(rctx, module, options, fatal = True, packages = []):
    """Runs a module of qola's Python package.

    Args:
      rctx: the repository context.
      module: name of the module, such as qola.repository.
      options: dict from an option's name to its value: a text or path, a list
        for one that may be repeated, True for one without a value, None or
        False to leave it out.
      fatal: whether to fail, with the module's message, where it fails.
      packages: labels of the requirements whose packages the module imports.

    Returns:
      The module's message where it failed, "" where it did not.
    """
    root = rctx.path(Label("//:MODULE.bazel")).dirname
    python = host_python(rctx)
    environment = _environment(rctx, root, packages)

    # Watch only the packages that the module imports (qola/common/packages.py): other edits rerun nothing.
    sources = rctx.execute([python, "-B", "-s", "-m", "qola.common.packages", module], environment = environment)
    if sources.return_code != 0:
        fail("\n" + sources.stderr.strip())
    for source in sources.stdout.splitlines():
        rctx.watch(root.get_child(source))
    result = rctx.execute(
        [python, "-B", "-s", "-m", module] + _words(options),
        environment = environment,
        timeout = 3600,
    )
    if result.return_code != 0:
        error = (result.stderr or result.stdout).strip()
        if fatal:
            fail("\n" + error)
        return error
    if result.stderr.strip():
        say(rctx, result.stderr.strip())
    return ""
