"""Progress messages on a terminal and in a log."""

from __future__ import annotations

import io
import sys

import pytest

from qola_base.progress import Pace, flush_progress, log, show_progress


class Terminal(io.StringIO):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def show(*reports: tuple[float, float | None]) -> list[int]:
    """Return the indices of reports, given as (seconds, share), that a log shows."""
    stream, times = io.StringIO(), iter([now for now, _ in reports])
    pace = Pace(lambda: next(times))
    with show_progress(stream):
        for number, (_, share) in enumerate(reports):
            pace.report(str(number), share)
    return [int(line.removeprefix("qola: ")) for line in stream.getvalue().splitlines()]


def test_line_for_each_tenth() -> None:
    """Prevents: forty lines in the log of a build of seven minutes."""
    lines = [(10.0 * n, n / 40) for n in range(41)]
    assert len(show(*lines)) == 11
    assert show(*lines)[-1] == 40
    # The last line is always shown, even directly after another line.
    assert show((0, 0.0), (10, 0.91), (20, 0.95), (30, 1.0)) == [0, 1, 3]


def test_line_per_minute_without_a_share() -> None:
    """Prevents: a line every ten seconds while Bazel analyses."""
    lines = [(10.0 * n, None) for n in range(13)]
    assert show(*lines) == [0, 6, 12]
    assert show(*lines, (125, 0.0), (135, 0.01)) == [0, 6, 12, 13]


def test_slow_builds_log_regularly() -> None:
    """Prevents: a build that CI aborts because its log shows no line for half an hour."""
    lines = [(10.0 * n, n / 10_000) for n in range(361)]
    assert show(*lines) == [60 * n for n in range(7)]


def test_quiet_shows_warnings_only() -> None:
    """Prevents: progress despite --quiet, a hidden warning, or unescaped control characters."""
    stream = io.StringIO()
    with show_progress(stream, quiet=True):
        log.info("step")
        log.warning("old \x1b[2J cache")
    assert stream.getvalue() == "qola: old \\u001b[2J cache\n"


def test_bar_disappears_and_warnings_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a progress bar mixed with results, or a warning overwritten by the next line."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with show_progress(stream):
        log.info("[step]")
        log.warning("[warning]")
        flush_progress()
        assert stream.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))
        log.info("again")
    text = stream.getvalue()
    assert "[step]" in text
    assert "qola: [warning]\n" in text
    assert "again" in text


def test_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a checkout without the package rich that fails to show progress."""
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    stream = Terminal()
    with show_progress(stream):
        log.info("step")
    assert stream.getvalue() == "qola: step\n"
