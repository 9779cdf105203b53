"""Starts the processes in which generators run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.errors import CodegenError, Finding

#: Seconds; the slowest generator of the 0.1.7 wheels takes 20.
TIMEOUT = 900
_TAIL_LINES = 25

# As it was imported, not resolved: in a Bazel runfiles tree every file is a link of its own.
_PACKAGE = Path(__file__).absolute().parent.parent


def run_module(module: str, arguments: Sequence[str], *, cwd: Path, place: str) -> None:
    """Run ``python -m MODULE ARGUMENTS`` in `cwd` with nothing of the caller's environment.

    No byte code is written into the AITER tree (-B), the process can import Python's own modules,
    qola and nothing else (-S, -s), and the hash seed is fixed, so that the output depends on the
    input alone.

    Raises:
        CodegenError: the process ends with another code than 0, or does not end; the finding has
            `place` and the end of what the process wrote.
    """
    command = [sys.executable, "-B", "-S", "-s", "-m", module, *arguments]
    with tempfile.TemporaryDirectory() as importable:
        # What was installed or lies beside qola must not be importable.
        Path(importable, _PACKAGE.name).symlink_to(_PACKAGE)
        env = {
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": importable,
            "PYTHONUTF8": "1",
            "PYTHONSAFEPATH": "1",
        }
        _run(command, env, cwd, place)


def _run(command: Sequence[str], env: Mapping[str, str], cwd: Path, place: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CodegenError(
            Finding(
                place=place, found=f"no end after {TIMEOUT} s", expected="a generator that ends"
            )
        ) from None
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL_LINES:])
        raise CodegenError(
            Finding(
                place=place,
                found=f"exit code {done.returncode}; the generator wrote:\n{tail}",
                expected="exit code 0",
            )
        )
