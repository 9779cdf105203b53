"""A bar on a terminal. Imported there alone, since it needs rich."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from qola.fmha.bar import Step, Tell


@contextmanager
def bar(stream: TextIO) -> Iterator[Tell]:
    """Yield what moves a bar, which is gone at the end; a text of several lines stays."""
    # No markup: a path or a compiler's words may have brackets.
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=stream), transient=True) as shown:
        task = shown.add_task("", total=None)

        def update(step: Step) -> None:
            lines = step.text.splitlines() or [""]
            if len(lines) > 1:
                shown.console.print(step.text, markup=False)
            shown.update(task, completed=step.done, total=step.total, description=lines[0])

        yield update
