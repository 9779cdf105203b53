"""Which kernels a command is about: names, lists, records, read as qola-kernels reads them.

The program's own reader is cc/kernels_tool/selection.cpp; a list means the same to both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from qola.errors import Finding, QolaError

STANDARD_INPUT = "-"

_ENTRY = re.compile(r"(.+)-[0-9a-f]{32}", re.DOTALL)
"""Start of a cached kernel's file name: arch and the first digits of its key."""

_LEFTOVER = re.compile(r"\.so\.[0-9A-Za-z]{6}")
"""What the name of a temporary file ends in: mkstemp's six characters."""

Row = tuple[str, str]
"""Name of a kernel instance, and an arch it is compiled for."""


class SelectionError(QolaError):
    """A list of kernels cannot be read, or names kernels that there are not."""

    exit_code: ClassVar[int] = 1
    default_title: ClassVar[str] = "the kernels cannot be selected"


@dataclass(frozen=True)
class ListLine:
    """A line of a list of kernels.

    Attributes:
        name: the kernel instance, "" for a line that says nothing.
        arch: the arch, "" for all.
        leftover: it is the name of a temporary file that was left behind.
    """

    name: str = ""
    arch: str = ""
    leftover: bool = False


def read_line(line: str) -> ListLine | None:
    """Read a line: a kernel's name, or the name of a file of it, then perhaps an arch.

    Returns:
        None for a line that is blank or a comment.

    Raises:
        ValueError: it has more words than two.
    """
    words = [word for word in re.split(r"[ \t\r]", line.partition("#")[0]) if word]
    if not words:
        return None
    if len(words) > 2:
        raise ValueError(line)
    directory, slash, file = words[0].rpartition("/")
    stem, dot, rest = file.partition(".")
    rest = dot + rest
    arch = words[1] if len(words) > 1 else ""
    entry = _ENTRY.fullmatch(stem) if slash else None
    if entry:
        name = directory.rpartition("/")[2]
        return ListLine(name, arch or entry[1], rest not in ("", ".so"))
    return ListLine(stem, arch, bool(_LEFTOVER.fullmatch(rest)))


@dataclass
class Selection:
    """Kernels by name, each for some archs.

    Attributes:
        everything: all kernels.
        archs: the archs asked for by name; none: all.
        leftovers: number of lines that were names of temporary files, and passed over.
    """

    everything: bool = False
    archs: dict[str, set[str]] = field(default_factory=dict)
    leftovers: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is selected."""
        return not self.everything and not self.archs

    def add(self, line: str, place: str = "the command line") -> None:
        """Add what a line names.

        Raises:
            SelectionError: it has more words than a name and an arch.
        """
        try:
            read = read_line(line)
        except ValueError:
            raise SelectionError(
                Finding(place, line.strip(), "a kernel's name, and perhaps an arch behind it")
            ) from None
        if read is None:
            return
        if read.leftover:
            self.leftovers += 1
        elif not read.arch:
            # No arch at all is every arch, whatever other lines say.
            self.archs[read.name] = set()
        elif read.name not in self.archs:
            self.archs[read.name] = {read.arch}
        elif self.archs[read.name]:
            self.archs[read.name].add(read.arch)

    def add_file(self, name: str, directory: Path, stdin: Any = None) -> None:
        """Add the lines of a file.

        Args:
            name: the file, "-" for standard input.
            directory: what its name is relative to.
            stdin: binary standard input; by default the process's.

        Raises:
            SelectionError: it cannot be read, or has a line that is none of a list's.
        """
        try:
            if name == STANDARD_INPUT:
                data = (stdin or sys.stdin.buffer).read()
            else:
                data = (directory / name).read_bytes()
        except OSError as error:
            raise SelectionError(
                Finding(name, error.strerror or str(error), "a list of kernels, one a line")
            ) from None
        # A name may have any byte; only a line feed ends a line, as it does for the program.
        text = data.decode("utf-8", "surrogateescape")
        for number, line in enumerate(text.split("\n"), 1):
            self.add(line, f"{name}:{number}")

    def has(self, row: Row) -> bool:
        """Whether a kernel for an arch is selected."""
        name, arch = row
        found = self.archs.get(name)
        return self.everything or (found is not None and (not found or arch in found))


@dataclass(frozen=True)
class Chosen:
    """What a selection comes to.

    Attributes:
        rows: the kernels that are selected, in the order given.
        missing: "<name>", or "<name> <arch>", of what there is not, sorted.
    """

    rows: tuple[Row, ...]
    missing: tuple[str, ...]


def choose(rows: Iterable[Row], selection: Selection) -> Chosen:
    """Return those of the rows that are selected, and what is selected and is no row."""
    rows = tuple(rows)
    there = set(rows)
    known = {name for name, _ in rows}
    missing: list[str] = []
    for name, archs in sorted(selection.archs.items()):
        if name not in known:
            missing.append(name)
        else:
            missing += [f"{name} {arch}" for arch in sorted(archs) if (name, arch) not in there]
    return Chosen(tuple(row for row in rows if selection.has(row)), tuple(missing))
