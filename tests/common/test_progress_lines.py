"""Which lines of progress a log has."""

from __future__ import annotations

from qola.progress import Pace, Passing


def logged(*lines: tuple[float, float | None]) -> list[int]:
    """Return the numbers of those lines, of (seconds, share), that a log has."""
    pace = Pace()
    made = [pace.line("text", share, now) for now, share in lines]
    assert all(line == "text" for line in made)
    return [number for number, line in enumerate(made) if not isinstance(line, Passing)]


def test_a_line_for_each_tenth() -> None:
    """Prevents: forty lines in the log of a build of seven minutes."""
    lines = [(10.0 * n, n / 40) for n in range(41)]
    assert len(logged(*lines)) == 11
    assert logged(*lines)[-1] == 40
    # The last line is there, however near the one before.
    assert logged((0, 0.0), (10, 0.91), (20, 0.95), (30, 1.0)) == [0, 1, 3]


def test_a_line_a_minute_before_the_work_is_known() -> None:
    """Prevents: a line every ten seconds while Bazel analyses."""
    lines = [(10.0 * n, None) for n in range(13)]
    assert logged(*lines) == [0, 6, 12]
    assert logged(*lines, (125, 0.0), (135, 0.01)) == [0, 6, 12, 13]


def test_hours_without_a_tenth() -> None:
    """Prevents: a build that CI ends because it says nothing for half an hour."""
    lines = [(10.0 * n, n / 10_000) for n in range(361)]
    assert logged(*lines) == [60 * n for n in range(7)]
