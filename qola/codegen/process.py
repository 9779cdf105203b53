"""Starts the processes in which generators run, and prepares them from the inside."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.common.processes import TooLongError, TooMuchError, run_group
from qola_base.errors import CodegenError, Finding

#: Seconds; the slowest generator of the 0.1.7 wheels takes 20.
TIMEOUT = 900
#: Bytes of messages; those of the 0.1.7 wheels write a few lines.
_MAX_OUTPUT = 16 << 20
_TAIL_LINES = 25

# As it was imported, not resolved: in a Bazel runfiles tree every file is a link of its own.
_PACKAGE_ROOT = Path(__file__).parent.parent.parent

#: Imports qola and what it stands on, and nothing else of their directory, such as installed
#: packages.
_START = """\
import runpy, sys
root = sys.argv.pop(1)
sys.path.insert(0, root)
import qola, qola_base
sys.path.remove(root)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run_module(module: str, arguments: Sequence[str], *, cwd: Path, place: str) -> None:
    """Run a module of qola as a program in `cwd`, without the caller's environment.

    Python writes no byte code into the AITER tree (-B) and can only import its own modules and qola
    (-S, -s). The hash seed is fixed, so that the output depends only on the input.

    Raises:
        CodegenError: the process fails, exceeds `TIMEOUT`, or writes too many messages; the finding
            has `place` and the last messages.
    """
    python = [sys.executable, "-B", "-S", "-s", "-c", _START, str(_PACKAGE_ROOT.absolute())]
    command = [*python, module, *arguments]
    env = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"}
    try:
        done = run_group(command, cwd=cwd, env=env, timeout=TIMEOUT, limit=_MAX_OUTPUT, merged=True)
    except TooLongError:
        found, expected = f"no end after {TIMEOUT} s", "a generator that ends"
    except TooMuchError:
        found = f"more than {_MAX_OUTPUT >> 20} MiB of messages on standard output"
        expected = "a generator that writes its sources into files, and few messages"
    else:
        if done.code == 0:
            return
        tail = "\n".join(done.out.decode("utf-8", "replace").splitlines()[-_TAIL_LINES:])
        found, expected = f"exit code {done.code}; the generator wrote:\n{tail}", "exit code 0"
    raise CodegenError(Finding(place, found, expected))


#: Bytes of memory, and of a file; the generators of the 0.1.7 wheels take 0.7 GB and 60 MB.
_MEMORY, _FILE = 8 << 30, 1 << 30


def prepare_generator() -> None:
    """Limit memory and file size of this process group, and end it with the parent process."""
    for kind, most in ((resource.RLIMIT_DATA, _MEMORY), (resource.RLIMIT_FSIZE, _FILE)):
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, hard))
    _end_with_parent()


def _end_with_parent() -> None:
    """Have the system signal this process group when standard input closes.

    Its other end is the parent's, which may be killed. Standard input is empty from now on.
    """
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        return
    parent = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    fcntl.fcntl(parent, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(parent, fcntl.F_GETFL)
    fcntl.fcntl(parent, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([parent], [], [], 0)[0]:  # it has ended already
        os._exit(1)


def ignore_bytecode() -> None:
    """Make this process and its children ignore existing byte code.

    The `__pycache__` of an AITER tree may not match its sources, and the digest of the tree leaves
    it out.
    """
    # Below a file, Python finds no byte code and can write none.
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = os.devnull
