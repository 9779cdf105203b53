"""Progress on a terminal and in a log."""

from __future__ import annotations

import io
import sys

import pytest

from qola.progress import Pace, flush_progress, log, show_progress


class Terminal(io.StringIO):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def shown(*reports: tuple[float, float | None]) -> list[int]:
    """Return the numbers of those reports, each of (seconds, share), that a log shows."""
    stream, times = io.StringIO(), iter([now for now, _ in reports])
    pace = Pace(lambda: next(times))
    with show_progress(stream):
        for number, (_, share) in enumerate(reports):
            pace.report(str(number), share)
    return [int(line.removeprefix("qola: ")) for line in stream.getvalue().splitlines()]


def test_a_line_for_each_tenth() -> None:
    """Prevents: forty lines in the log of a build of seven minutes."""
    lines = [(10.0 * n, n / 40) for n in range(41)]
    assert len(shown(*lines)) == 11
    assert shown(*lines)[-1] == 40
    # The last line is shown, however soon after the one before.
    assert shown((0, 0.0), (10, 0.91), (20, 0.95), (30, 1.0)) == [0, 1, 3]


def test_a_line_a_minute_before_the_share_is_known() -> None:
    """Prevents: a line every ten seconds while Bazel analyses."""
    lines = [(10.0 * n, None) for n in range(13)]
    assert shown(*lines) == [0, 6, 12]
    assert shown(*lines, (125, 0.0), (135, 0.01)) == [0, 6, 12, 13]


def test_hours_without_a_tenth() -> None:
    """Prevents: a build that CI ends because its log is silent for half an hour."""
    lines = [(10.0 * n, n / 10_000) for n in range(361)]
    assert shown(*lines) == [60 * n for n in range(7)]


def test_quiet_shows_warnings_only() -> None:
    """Prevents: progress that was declined, a hidden warning, or escape codes of foreign text."""
    stream = io.StringIO()
    with show_progress(stream, quiet=True):
        log.info("step")
        log.warning("old \x1b[2J cache")
    assert stream.getvalue() == "qola: old \\u001b[2J cache\n"


def test_a_bar_vanishes_and_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a bar that mixes with results, or a warning that the next line replaces."""
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


def test_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a plain checkout that fails without a package for a bar."""
    for name in ("rich", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    stream = Terminal()
    with show_progress(stream):
        log.info("step")
    assert stream.getvalue() == "qola: step\n"
