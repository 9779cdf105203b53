"""Where the command line prints: tables and a spinner on a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from qola.tables import Table, to_text


@dataclass(frozen=True)
class Console:
    """Standard output for results, standard error for everything else.

    Attributes:
        out: where results go.
        err: where progress, warnings and errors go.
        quiet: no progress.
    """

    out: TextIO
    err: TextIO
    quiet: bool = False

    def line(self, text: str = "") -> None:
        """Print a line of the result."""
        print(text, file=self.out)

    def note(self, text: str) -> None:
        """Print a line beside the result."""
        self.out.flush()
        print(text, file=self.err)

    def table(self, table: Table) -> None:
        """Print a table: boxed on a terminal, aligned text in full width elsewhere."""
        if not (self.out.isatty() and self._print_rich(table)):
            self.line(to_text(table))

    def _print_rich(self, table: Table) -> bool:
        """Print with rich; return whether it is installed."""
        try:
            import rich.box
            import rich.console
            import rich.table
            from rich.text import Text
        except ImportError:
            return False
        grid = rich.table.Table(
            title=Text(table.title, "bold"),
            title_justify="left",
            box=rich.box.SIMPLE_HEAD,
            show_footer=bool(table.total),
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
            grid.add_row(*map(Text, row))
        rich.console.Console(file=self.out, highlight=False).print(grid)
        return True

    @contextmanager
    def working(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that says on standard error what is being done.

        On a terminal it is one line with a spinner, gone at the end.
        """
        if self.quiet:
            yield lambda _: None
            return
        if self.err.isatty():
            try:
                import rich.console
                import rich.status
                from rich.text import Text
            except ImportError:
                pass
            else:
                console = rich.console.Console(file=self.err)
                with rich.status.Status("", console=console) as status:
                    yield lambda text: status.update(Text(text))
                return
        yield lambda text: self.note(f"qola: {text}")
