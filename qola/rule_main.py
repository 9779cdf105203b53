"""How errors and signals leave command lines, and those of modules that repository rules run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from qola.errors import ExitCode, QolaError
from qola.files import system_error
from qola.progress import show_progress


def run_main(work: Callable[[], None], *, quiet: bool = True) -> int:
    """Do the work of a command line; return its exit code.

    An error a user can correct, a full disk or too little memory among them, is printed with the
    name of its class: by it, `qola build` tells from what Bazel prints whose fault it is.
    """
    try:
        try:
            with ended_by_signals(), show_progress(sys.stderr, quiet=quiet):
                work()
        except (OSError, MemoryError, RuntimeError) as error:
            if (told := system_error(error)) is None:
                raise
            raise told from None
    except QolaError as error:
        print(f"qola: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have signals that end this process leave by way of every `with`: no temporary file stays."""
    # A closed terminal hangs up; nohup has it ignored.
    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _terminate) for number in ends}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(ExitCode.TERMINATED)
