"""Starts the processes in which generators run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from qola.errors import CodegenError, Finding
from qola.processes import TooLongError, TooMuchError, run_group

#: Seconds; the slowest generator of the 0.1.7 wheels takes 20.
TIMEOUT = 900
#: Bytes of messages; those of the 0.1.7 wheels write a few lines.
_MAX_OUTPUT = 16 << 20
_TAIL_LINES = 25

# As it was imported, not resolved: in a Bazel runfiles tree every file is a link of its own.
_PACKAGE_ROOT = Path(__file__).parent.parent.parent

#: Imports qola, and nothing else of the directory that it is in, such as installed packages.
_START = """\
import runpy, sys
root = sys.argv.pop(1)
sys.path.insert(0, root)
import qola
sys.path.remove(root)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run_module(module: str, arguments: Sequence[str], *, cwd: Path, place: str) -> None:
    """Run a module of qola as a program in `cwd`, with nothing of the caller's environment.

    No byte code is written into the AITER tree (-B), only Python's own modules and qola can be
    imported (-S, -s), and the hash seed is fixed, so that the output depends on the input alone.

    Raises:
        CodegenError: the process ends with another code than 0, does not end, or writes messages
            without end; the finding has `place` and the last of its messages.
    """
    python = [sys.executable, "-B", "-S", "-s", "-c", _START, str(_PACKAGE_ROOT.absolute())]
    command = [*python, module, *arguments]
    env = {
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONSAFEPATH": "1",
    }
    try:
        done = run_group(command, cwd=cwd, env=env, timeout=TIMEOUT, limit=_MAX_OUTPUT, merged=True)
    except TooLongError:
        raise CodegenError(
            Finding(
                place=place, found=f"no end after {TIMEOUT} s", expected="a generator that ends"
            )
        ) from None
    except TooMuchError:
        raise CodegenError(
            Finding(
                place=place,
                found=f"more than {_MAX_OUTPUT >> 20} MiB of messages on standard output",
                expected="a generator that writes its sources into files, and few messages",
            )
        ) from None
    if done.code != 0:
        lines = done.out.decode("utf-8", "replace").splitlines()
        tail = "\n".join(lines[-_TAIL_LINES:])
        raise CodegenError(
            Finding(
                place=place,
                found=f"exit code {done.code}; the generator wrote:\n{tail}",
                expected="exit code 0",
            )
        )
