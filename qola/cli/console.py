"""Prints results, tables, and quantities with units."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from qola_base.errors import visible
from qola_base.progress import flush_progress


@dataclass(frozen=True)
class Console:
    """Standard output for results, standard error for warnings and errors."""

    out: TextIO
    err: TextIO

    def line(self, text: str = "") -> None:
        """Print a line of the result, or several, with control characters escaped."""
        flush_progress()
        print(visible(text, keep="\n\t"), file=self.out)

    def json(self, value: Any) -> None:
        """Print a JSON value."""
        self.line(json.dumps(value, indent=2, sort_keys=True))

    def note(self, text: str) -> None:
        """Print a line on standard error, with control characters escaped."""
        flush_progress()
        self.out.flush()
        print(visible(text, keep="\n\t"), file=self.err)


@dataclass(frozen=True)
class Surroundings:
    """The process around a command; relative paths of arguments are relative to `directory`."""

    environ: Mapping[str, str]
    directory: Path
    console: Console


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    total: Sequence[str] = (),
    *,
    numbers: int,
) -> str:
    """Return a table as text of full width.

    Args:
        total: a separate last row, () for none.
        numbers: how many columns, counted from the right, hold numbers.
    """
    cells = [columns, *rows, *([total] if total else [])]
    return "\n".join([title, *align(cells, len(columns) - numbers)])


def align(lines: Sequence[Sequence[str]], text_columns: int) -> list[str]:
    """Return rows of cells as lines with two blanks between columns.

    The first `text_columns` columns are aligned left, the others right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < text_columns else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def size(count: float) -> str:
    """Return a number of bytes with a decimal unit: 850 kB, 1.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
