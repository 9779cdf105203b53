"""Applies the hunks of a unified diff to the lines of one file, without fuzz."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unidiff.patch import Hunk, Line


@dataclass(frozen=True)
class Rejected:
    """A hunk that does not fit the file; hunks and lines are counted from 1.

    Attributes:
        start: the expected line of the hunk in the file.
        found: the file's lines there, () past its end.
        reason: a known reason, "" if the lines differ.
    """

    number: int
    hunk: str
    start: int
    found: tuple[str, ...]
    reason: str


def apply_hunks(
    lines: Sequence[str], hunks: Sequence[Hunk]
) -> tuple[list[str], tuple[Rejected, ...]]:
    """Return a file's lines after its hunks, and the hunks that do not fit.

    As in git apply, every context and removed line must match exactly, but the lines may have
    moved: the hunk is applied at the nearest matching position after the previous hunk. A hunk
    without context before (after) its change belongs at the beginning (end).
    """
    result: list[str] = []
    done, offset = 0, 0
    rejected: list[Rejected] = []
    for number, hunk in enumerate(hunks, 1):
        before, after = _sides(hunk)
        # A hunk that only adds names the line after which it does.
        start = hunk.source_start - (1 if hunk.source_length else 0)
        wanted = min(max(start + offset, 0), len(lines))
        place = _find(lines, hunk, before, wanted, done)
        if place is None:
            found = tuple(lines[wanted : wanted + max(len(before), 1)])
            reason = _reason(lines, before, after)
            rejected.append(Rejected(number, str(hunk).rstrip("\n"), wanted + 1, found, reason))
            continue
        offset = place - start
        result += [*lines[done:place], *after]
        done = place + len(before)
    return [*result, *lines[done:]], tuple(rejected)


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """Return the lines that a hunk expects, and their replacement."""
    sides: tuple[list[str], list[str]] = ([], [])
    last: tuple[int, ...] = ()
    for line in hunk:
        if is_change(line):
            last = (0, 1) if line.is_context else (0,) if line.is_removed else (1,)
            for side in last:
                sides[side].append(line.value)
        elif line.line_type == "\\":  # no newline at the end of the line before
            for side in last:
                sides[side][-1] = sides[side][-1].rstrip("\n")
    return sides


def is_change(line: Line) -> bool:
    """Return whether a hunk's line belongs to the file before or after the change."""
    return line.is_context or line.is_removed or line.is_added


def _find(
    lines: Sequence[str], hunk: Hunk, before: list[str], wanted: int, first: int
) -> int | None:
    """Return the index of `before` that is nearest to `wanted` and not below `first`, if any."""
    last = end = len(lines) - len(before)
    changes = [line for line in hunk if is_change(line)]
    if hunk.source_start <= 1 and not changes[0].is_context:
        last = min(last, 0)
    if before and not changes[-1].is_context:
        first = max(first, end)
    if not before and lines:
        return None  # an addition without context has no position
    candidates = sorted(range(first, last + 1), key=lambda index: (abs(index - wanted), index))
    return next((i for i in candidates if list(lines[i : i + len(before)]) == before), None)


def _reason(lines: Sequence[str], before: list[str], after: list[str]) -> str:
    if not before:
        return "the hunk has no context that says where it belongs; make it with git diff -U3"
    if after and _contains(lines, after):
        return "the file has this change already"
    stripped = [line.rstrip("\r\n") for line in before]
    if _contains([line.rstrip("\r\n") for line in lines], stripped):
        return (
            "the lines are there, but with other line ends (CRLF), or not at the beginning or end "
            "of the file, where a hunk without context on that side belongs"
        )
    return ""


def _contains(lines: Sequence[str], part: list[str]) -> bool:
    return any(list(lines[i : i + len(part)]) == part for i in range(len(lines) - len(part) + 1))
