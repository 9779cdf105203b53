"""Where the command line prints: tables and a spinner on a terminal, plain text elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from qola.cli.tables import Table, to_text
from qola.errors import visible
from qola.progress import Passing


@dataclass(frozen=True)
class Console:
    """Standard output for results, standard error for progress, warnings and errors."""

    out: TextIO
    err: TextIO
    quiet: bool = False

    def line(self, text: str = "") -> None:
        """Print a line of the result."""
        print(text, file=self.out)

    def note(self, text: str) -> None:
        """Print a line beside the result, without escapes of somebody else's."""
        self.out.flush()
        print(visible(text, keep="\n\t"), file=self.err)

    def progress(self, text: str) -> None:
        """Say what is being done, in a log of lines."""
        if not self.quiet and not isinstance(text, Passing):
            self.note(f"qola: {text}")

    def table(self, table: Table) -> None:
        """Print a table: for the eye on a terminal, as aligned text in full width elsewhere."""
        rich = _rich(self.out)
        if rich is None:
            self.line(to_text(table))
        else:
            rich.print_table(table, self.out)

    @contextmanager
    def working(self, *, plain: bool = False) -> Iterator[Callable[[str], None]]:
        """Yield a function that says on standard error what is being done.

        Args:
            plain: no spinner, since another program writes there too.
        """
        rich = None if self.quiet or plain else _rich(self.err)
        if rich is not None:
            with rich.spinner(self.err) as update:
                yield update
        else:
            yield self.progress


def _rich(stream: TextIO) -> Any:
    """Return qola.cli.console_rich where it is of use: on a terminal, with rich installed."""
    if not stream.isatty():
        return None
    try:
        return importlib.import_module("qola.cli.console_rich")
    except ModuleNotFoundError:
        return None
