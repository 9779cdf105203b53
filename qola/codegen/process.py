"""Starts the processes in which generators run, and prepares them from the inside."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import select
import stat
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from qola.common.extras import missing_packages
from qola.common.packages import ROOT
from qola.common.processes import TooLongError, TooMuchError, run_group
from qola_base.errors import CodegenError, Finding

#: Seconds; the slowest generator of the 0.1.7 wheels takes 20.
TIMEOUT = 900
#: Bytes of messages; those of the 0.1.7 wheels write a few lines.
_MAX_OUTPUT = 16 << 20
_TAIL_LINES = 25

#: Packages of third_party/python/generators.txt, which AITER's generators import.
_PACKAGES = (
    *("pandas", "numpy", "dateutil", "pytz", "six", "tzdata"),
    *("jinja2", "markupsafe", "packaging"),
)
_PATH = "GENERATOR_PATH"
"""Environment variable of a generator: the directories in which packages may be."""

_MISSING = re.compile(rf"No module named '({'|'.join(_PACKAGES)})'")

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
    (-S, -s), and the packages of `offer_packages`. The hash seed is fixed, so that the output
    depends only on the input.

    Raises:
        MissingPackagesError: the generator imports a package that this Python does not have.
        CodegenError: the process fails, exceeds `TIMEOUT`, or writes too many messages; the finding
            has `place` and the last messages.
    """
    python = [sys.executable, "-B", "-S", "-s", "-c", _START, str(ROOT)]
    command = [*python, module, *arguments]
    env = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONSAFEPATH": "1"}
    env[_PATH] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
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
        if (package := _MISSING.search(tail)) and find_spec(package[1]) is None:
            raise missing_packages("generators", place)
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


def offer_packages() -> None:
    """Let this process import the packages of AITER's generators, and no other installed package.

    So its output does not depend on what else is installed.
    """
    # NumPy would start a thread per core, and none of them would have work.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.meta_path.append(_PackageFinder(os.environ.get(_PATH, "").split(os.pathsep)))


class _PackageFinder(MetaPathFinder):
    """Finds the packages of generators in directories of installed packages."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of the packages; None for other modules and for submodules."""
        spec = PathFinder.find_spec(name, self._path) if name in _PACKAGES else None
        if spec is None or spec.origin is None:
            return None
        return spec_from_file_location(
            name,
            spec.origin,
            loader=_BytecodeLoader(name, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


class _BytecodeLoader(SourceFileLoader):
    """Loads a package with byte code, in spite of `ignore_bytecode`: pandas would take 1 s more."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the package's code."""
        prefix, sys.pycache_prefix = sys.pycache_prefix, None
        try:
            super().exec_module(module)
        finally:
            sys.pycache_prefix = prefix
