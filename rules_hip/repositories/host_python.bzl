"""Finds the Python of repository rules."""

load("//lib:finding.bzl", "finding")

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
