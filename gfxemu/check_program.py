"""Checks that the fake HIP runtime has all functions of HIP that a program calls.

The runtime defines functions that it lacks, too: weakly, as ones that end the process.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from qola_base.errors import Finding, QolaError
from qola_base.rule_main import run_main


class MissingFunctionsError(QolaError, title="the emulator's HIP runtime lacks functions"):
    """A program that calls functions that the fake runtime lacks."""


def check_functions(runtime: Path, program: Path, place: str, unused: Sequence[str] = ()) -> None:
    """Check a program.

    Args:
        place: the program, for errors.
        unused: functions that the program links and does not call.

    Raises:
        MissingFunctionsError: it names all functions that the runtime lacks.
    """
    lacking = {name for name, undefined, weak in _symbols(runtime) if weak and not undefined}
    linked = {name for name, undefined, weak in _symbols(program) if undefined and not weak}
    if missing := sorted(linked & lacking - {*unused}):
        expected = "functions that docs/guide/hip.md#functions-of-hip lists"
        names = ", ".join(map(_quoted, missing))
        fix = "use other functions, or run the program on a GPU; if it never calls them on the "
        fix += f"emulator: unused_functions = [{names}]"
        raise MissingFunctionsError(Finding(place, ", ".join(missing), expected, fix))


def _quoted(name: str) -> str:
    return f'"{name}"'


def _symbols(library: Path) -> Iterator[tuple[str, bool, bool]]:
    """Yield name, whether it is undefined, and whether it is weak, of each dynamic symbol."""
    with library.open("rb") as stream:
        section: Any = ELFFile(stream).get_section_by_name(".dynsym")
        for symbol in section.iter_symbols() if section else ():
            bind = symbol["st_info"]["bind"]
            yield symbol.name, symbol["st_shndx"] == "SHN_UNDEF", bind == "STB_WEAK"


def main(argv: Sequence[str] | None = None) -> int:
    """Check a program, and write an empty file if it may run."""
    parser = argparse.ArgumentParser(prog="gfxemu.check_program", allow_abbrev=False)
    parser.add_argument("--runtime", required=True, type=Path, help="gfxemu/fake_hip's library")
    parser.add_argument("--program", required=True, type=Path, help="the program")
    parser.add_argument("--place", required=True, help="the program's name in errors")
    parser.add_argument("--unused", action="append", default=[], help="a function to ignore")
    parser.add_argument("--output", required=True, type=Path, help="the file to write")
    args = parser.parse_args(argv)

    def check() -> None:
        check_functions(args.runtime, args.program, args.place, args.unused)
        args.output.write_text("", encoding="utf-8")

    return run_main(check)


if __name__ == "__main__":
    sys.exit(main())
