"""Lines of progress: all of them on a terminal, where the next replaces the last; few in a log."""

from __future__ import annotations

import math

_SECONDS = 60.0
_SILENCE = 600.0
"""Between two lines of a log at most, since services end builds that say nothing."""


class Passing(str):
    """A line that a log leaves out."""

    __slots__ = ()


class Pace:
    """Decides which lines a log has: one for each tenth of the work, else one a minute."""

    def __init__(self) -> None:
        self._tenths: int | None = None
        self._at = -math.inf

    def line(self, text: str, share: float | None, now: float) -> str:
        """Return the line, `Passing` unless it is due.

        Args:
            share: the part of the work that is done, None where it is not known.
            now: seconds on any clock.
        """
        tenths = None if share is None else math.floor(10 * share + 1e-9)
        pause = _SECONDS if tenths is None else _SILENCE
        if tenths == self._tenths and now - self._at < pause:
            return Passing(text)
        self._tenths, self._at = tenths, now
        return text
