"""Reports progress by logging, and shows it on standard error.

All of qola logs to `log`: steps with level INFO, warnings with WARNING, and with STATUS the lines
that only a terminal shows, where the next one replaces the last. `show_progress` is the only
console. Programs that use qola as a library can handle the logger "qola" themselves.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

from qola_base.errors import visible

log = logging.getLogger("qola")

STATUS = 15
"""Level of lines that are too frequent for a log."""
logging.addLevelName(STATUS, "STATUS")

_SECONDS = 60.0
_SILENCE = 600.0
"""The longest time without a line in a log: CI services end silent builds."""


class Pace:
    """Logs how far long work is: each report as STATUS, few of them as INFO.

    INFO is for each tenth of the work; one report a minute before the share is known.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tenths: int | None = None
        self._last = -math.inf

    def report(self, text: str, share: float | None = None) -> None:
        """Log a line; `share` is the part of the work that is done, None if unknown."""
        tenths = None if share is None else math.floor(10 * share + 1e-9)
        pause = _SECONDS if tenths is None else _SILENCE
        level, now = STATUS, self._clock()
        if tenths != self._tenths or now - self._last >= pause:
            self._tenths, self._last, level = tenths, now, logging.INFO
        log.log(level, text, extra={"share": share})


def duration(seconds: float) -> str:
    """Return a time with about two significant digits: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(5 * round(minutes / 5), 60)
    return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"


@contextmanager
def show_progress(stream: TextIO, *, quiet: bool = False) -> Iterator[None]:
    """Show log records on a stream: with a bar on a terminal, as lines elsewhere.

    Args:
        quiet: show only warnings.
    """
    level = logging.WARNING if quiet else STATUS
    handler = _make_handler(stream)
    handler.setLevel(level)
    before = log.level
    log.addHandler(handler)
    log.setLevel(min(level, before or level))
    try:
        yield
    finally:
        log.setLevel(before)
        log.removeHandler(handler)
        handler.close()


@contextmanager
def library_progress(*, quiet: bool = False) -> Iterator[None]:
    """Show progress on standard error, unless the program handles the logger "qola" itself."""
    with nullcontext() if log.hasHandlers() else show_progress(sys.stderr, quiet=quiet):
        yield


def flush_progress() -> None:
    """Clear the bar before something else writes to the terminal; the next record draws it."""
    for handler in log.handlers:
        handler.flush()


def _make_handler(stream: TextIO) -> logging.Handler:
    if stream.isatty():
        try:
            return _Bar(stream)
        except ModuleNotFoundError:  # rich: a checkout without its dependencies
            pass
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: record.levelno >= logging.INFO)
    handler.setFormatter(_Line())
    return handler


class _Line(logging.Formatter):
    """Writes "qola: " and the message, without control characters of foreign text."""

    def format(self, record: logging.LogRecord) -> str:
        return f"qola: {visible(record.getMessage(), keep=chr(10) + chr(9))}"


class _Bar(logging.Handler):
    """Draws the last record beside a spinner and a bar; warnings and long messages stay."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        # Imported only for a terminal: rich takes 0.1 s.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

        self._bar = BarColumn(bar_width=20)
        text = TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            SpinnerColumn(), self._bar, text, console=Console(file=stream), transient=True
        )
        self._task = self._progress.add_task("", total=None)

    def emit(self, record: logging.LogRecord) -> None:
        line = _Line().format(record)
        if record.levelno >= logging.WARNING or "\n" in line:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        share = getattr(record, "share", None)
        self._progress.update(
            self._task,
            total=None if share is None else 1.0,
            completed=share or 0.0,
            description=line.removeprefix("qola: "),
        )
        self._progress.start()

    def flush(self) -> None:
        self._progress.stop()

    def close(self) -> None:
        self._progress.stop()
        super().close()
