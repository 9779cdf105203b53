"""Tables as data, and as aligned text: what the command line prints into a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table to print.

    Attributes:
        total: a last row set apart, () for none.
        numbers: how many columns, from the right, hold numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    total: tuple[str, ...] = ()
    numbers: int = 0

    @property
    def text_columns(self) -> int:
        """Number of columns, from the left, that hold text."""
        return len(self.columns) - self.numbers


def to_text(table: Table) -> str:
    """Return the table in full width as text: no escape codes, nothing cut off."""
    lines = [table.columns, *table.rows, *([table.total] if table.total else [])]
    return "\n".join([*([table.title] if table.title else []), *align(lines, table.text_columns)])


def align(lines: Sequence[Sequence[str]], text_columns: int) -> list[str]:
    """Return rows of cells as lines with two blanks between the columns.

    So many columns, from the left, are aligned left, the others right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < text_columns else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def duration(seconds: float) -> str:
    """Return a time as people say it, to about two digits: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(5 * round(minutes / 5), 60)
    return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"


def size(count: float) -> str:
    """Return a number of bytes as people say it, in powers of ten: 850 kB, 1.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
