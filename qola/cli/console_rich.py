"""Tables and a spinner for a terminal. Imported there alone, since it needs rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status
from rich.table import Table as Grid
from rich.text import Text

from qola.cli.tables import Table


def print_table(table: Table, out: TextIO) -> None:
    """Print a table in the width of the terminal; long cells go on in the next line."""
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
    Console(file=out, highlight=False).print(grid)


@contextmanager
def spinner(err: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that sets the text beside a spinner, which is gone at the end.

    A text of several lines, a warning, stays.
    """
    with Status("", console=Console(file=err)) as status:

        def say(text: str) -> None:
            if "\n" in text:
                status.console.print(Text(text))
            else:
                status.update(Text(text))

        yield say
