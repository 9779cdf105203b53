"""Prints results: tables for a terminal, plain text elsewhere; and quantities in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from qola.errors import visible
from qola.progress import flush_progress


@dataclass(frozen=True)
class Console:
    """Standard output for results, standard error for warnings and errors."""

    out: TextIO
    err: TextIO

    def line(self, text: str = "") -> None:
        """Print a line of the result."""
        flush_progress()
        print(text, file=self.out)

    def note(self, text: str) -> None:
        """Print a line on standard error, with control characters escaped."""
        flush_progress()
        self.out.flush()
        print(visible(text, keep="\n\t"), file=self.err)

    def table(self, table: Table) -> None:
        """Print a table: with colours on a terminal, as aligned text of full width elsewhere."""
        if self.out.isatty():
            try:
                flush_progress()
                _print_rich(table, self.out)
                return
            except ModuleNotFoundError:  # rich: a checkout without its dependencies
                pass
        self.line(to_text(table))


@dataclass(frozen=True)
class Surroundings:
    """The process around a command; relative paths of arguments are relative to `directory`."""

    environ: Mapping[str, str]
    directory: Path
    console: Console


@dataclass(frozen=True)
class Table:
    """A table to print.

    Attributes:
        total: a separate last row, () for none.
        numbers: how many columns, counted from the right, hold numbers.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    total: tuple[str, ...] = ()
    numbers: int = 0

    @property
    def text_columns(self) -> int:
        """Number of columns, counted from the left, that hold text."""
        return len(self.columns) - self.numbers


def to_text(table: Table) -> str:
    """Return the table as text of full width, without escape codes."""
    lines = [table.columns, *table.rows, *([table.total] if table.total else [])]
    return "\n".join([*([table.title] if table.title else []), *align(lines, table.text_columns)])


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


def _print_rich(table: Table, out: TextIO) -> None:
    # Imported only for a terminal: rich takes 0.1 s.
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console as RichConsole  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Grid(
        title=Text(table.title, "bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
        show_footer=bool(table.total),
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for place, column in enumerate(table.columns):
        grid.add_column(
            Text(column),
            Text(table.total[place]) if table.total else "",
            justify="left" if place < table.text_columns else "right",
            overflow="fold",
        )
    for row in table.rows:
        # Text, because brackets in a string are rich's markup.
        grid.add_row(*map(Text, row))
    RichConsole(file=out, highlight=False).print(grid)


def duration(seconds: float) -> str:
    """Return a time with about two significant digits: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(5 * round(minutes / 5), 60)
    return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"


def size(count: float) -> str:
    """Return a number of bytes with a decimal unit: 850 kB, 1.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
