"""``qola inspect``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qola.cli import options
from qola.cli.commands import add_command
from qola.cli.console import Surroundings, Table
from qola.common.extras import needs

if TYPE_CHECKING:
    from qola.report.inspection import Inspection
    from qola_base.code_object.reader import CodeObject


def add_commands(commands: Any) -> None:
    """Add inspect to the parser's subcommands."""
    parser = add_command(commands, "inspect", _inspect, (), words="LIBRARY...")
    parser.add_argument(
        "libraries",
        nargs="+",
        type=Path,
        metavar="LIBRARY",
        help="a library of any build system, a code object, or the directory of a bundle",
    )
    options.add_options(parser, "json", help="print JSON, with the names of all kernels")


def _inspect(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola inspect``."""
    with needs("report", "qola inspect"):
        from qola.report.inspection import (  # noqa: PLC0415
            SCHEMA,
            check_compilers,
            inspect_library,
        )
        from qola.report.write import libraries_in  # noqa: PLC0415

    paths = [path for place in args.libraries for path in libraries_in(around.directory / place)]
    found = [inspect_library(path) for path in paths]
    if args.json:
        # Standard output has one JSON value: the error, if there is one.
        check_compilers(found)
        libraries = [one.to_json() for one in found]
        around.console.json({"libraries": libraries, "schema": SCHEMA})
        return
    for number, one in enumerate(found):
        if number:
            around.console.line()
        _print(one, around)
    check_compilers(found)


def _print(found: Inspection, around: Surroundings) -> None:
    console = around.console
    console.line(f"{found.file}: {found.size:,} bytes, sha256 {found.sha256}")
    runpath = f", searched in {':'.join(found.runpath)}" if found.runpath else ""
    console.line(f"needs {found.hip}{runpath}" if found.hip else "does not need HIP's runtime")
    if not found.every:
        console.line("contains no device code")
        return
    console.table(
        Table(
            f"device code for {', '.join(found.archs)}:",
            ("sha256", "arch", "format", "compiler", "kernels", "bytes"),
            [*_rows(found.code, ""), *_rows(found.embedded, " (data)")],
            numbers=2,
        )
    )


def _rows(code: Sequence[CodeObject], mark: str) -> Iterable[tuple[str, ...]]:
    from qola.report.inspection import compiler_of  # noqa: PLC0415

    for one in code:
        numbers = (str(len(one.kernels)), f"{one.size:,}")
        yield one.sha256[:16], one.arch, f"V{one.version}{mark}", compiler_of(one), *numbers
