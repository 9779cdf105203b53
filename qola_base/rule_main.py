"""Turns errors and signals into exit codes of command lines and of repository rules' modules."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from qola_base.errors import ExitCode, QolaError
from qola_base.progress import show_progress
from qola_base.system_errors import system_error


def run_main(work: Callable[[], None], *, quiet: bool = True) -> int:
    """Do the work of a command line; return its exit code.

    Errors that a user can correct, such as a full disk, are printed with the name of their class,
    from which `qola build` recognises them in Bazel's output. Progress is not shown if `quiet`.
    """
    try:
        try:
            with ended_by_signals(), show_progress(sys.stderr, quiet=quiet):
                work()
        except (OSError, MemoryError, RuntimeError) as error:
            if (known := system_error(error)) is None:
                raise
            raise known from None
    except QolaError as error:
        print(f"qola: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn signals that end this process into SystemExit, so that temporary files are removed."""
    # A closed terminal sends SIGHUP; nohup ignores it.
    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _terminate) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(ExitCode.TERMINATED)
