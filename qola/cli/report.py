"""``qola report`` and ``qola inspect``: about built libraries."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qola.cli import options
from qola.cli.commands import PLANNING, add_command
from qola.cli.console import Surroundings, table
from qola.cli.plan import find_verdicts, request_of
from qola.common.extras import needs
from qola.plan import planner
from qola.plan.model import Plan
from qola.query.kernels import summary
from qola.report.data import LeftOut, ReportError
from qola_base.errors import Finding, visible

if TYPE_CHECKING:
    from qola.report.inspection import Inspection
    from qola_base.code_object.reader import CodeObject


def add_commands(commands: Any) -> None:
    """Add report and inspect to the parser's subcommands."""
    _add_report(commands)
    parser = add_command(commands, "inspect", _inspect, (), words="LIBRARY...")
    parser.add_argument(
        "libraries",
        nargs="+",
        type=Path,
        metavar="LIBRARY",
        help="a library of any build system, a code object, or the directory of a bundle",
    )
    options.add_options(parser, "json", help="print JSON, with the names of all kernels")


def _add_report(commands: Any) -> None:
    report = add_command(commands, "report", _report, PLANNING, words="[BUILT...] [MANIFEST]")
    built = (
        "a library, or a bundle: a directory with them (default: the directory to which qola build "
        "of the manifest writes)"
    )
    page = "the page; FILE.json has the same for programs"
    options.add_options(report, "output", required=True, help=page)
    options.add_manifest(report, needed=False, more=("BUILT", built))
    report.add_argument(
        "--plan", type=Path, metavar="FILE", help="plan.json of the build, instead of the manifest"
    )
    report.add_argument(
        "--execution-log",
        type=Path,
        metavar="FILE",
        help="what --execution_log_json_file of the build wrote: seconds, and caches",
    )
    report.add_argument(
        "--compare",
        type=Path,
        metavar="FILE.json",
        help="JSON of an earlier report: the new JSON compares the kernels with it",
    )
    options.add_options(report, "aiter_root", help=options.PLANNED_TREE)
    options.add_options(report, *options.AITER[1:], "skip_checkout", "archs", "mode")


def _built(args: argparse.Namespace, around: Surroundings) -> str:
    """Return the directory to which `qola build` of the manifest writes by default.

    Raises:
        ReportError: it does not exist.
        UsageError: no manifest is named.
    """
    if args.manifest is None:
        args.parser.error("the following arguments are required: BUILT or MANIFEST")
    place = options.output_place(args, around)
    if not (around.directory / place).is_dir():
        expected = "the directory that qola build writes, or BUILT, another place with libraries"
        fix = f"qola build {shlex.quote(str(args.manifest))}"
        raise ReportError(Finding(str(place), "no such directory", expected, fix))
    return str(place)


def _report(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola report``."""
    with needs("report", "qola report"):
        from qola.report.write import (  # noqa: PLC0415
            libraries_in,
            read_date,
            read_plan,
            write_report,
        )

    output: Path = around.directory / args.output
    if output.suffix != ".html":
        fix = f"--output {Path(args.output).with_suffix('.html')}"
        raise ReportError(Finding("--output", args.output, "a file that ends in .html", fix))
    if not args.words:
        args.words = [_built(args, around)]
    dates = {read_date(around.directory / word) for word in args.words} - {""}
    libraries = [path for word in args.words for path in libraries_in(around.directory / word)]
    plan: Plan | None = None
    left_out: tuple[LeftOut, ...] | None = None
    if args.plan:
        plan = read_plan(around.directory / args.plan)
    elif args.manifest:
        request = request_of(args, around)
        plan = planner.plan(request)
        left_out = tuple(
            LeftOut(rule.module, rule.direction, rule.role, rule.rule, rule.count)
            for rule in summary(find_verdicts(request))
            if not rule.kept
        )
    report = write_report(
        output,
        libraries,
        plan,
        options.place_of(args.execution_log, around),
        left_out,
        options.place_of(args.compare, around),
        date=max(dates, default=""),
        command=visible(args.command_line),
    )
    found = f"{len(report.kernels)} kernels of {len(report.batches)} compiles"
    around.console.line(f"{args.output}: {found}, {len(report.assembly)} assembly kernels")


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
    text = table(
        f"device code for {', '.join(found.archs)}:",
        ("sha256", "arch", "format", "compiler", "kernels", "bytes"),
        [*_rows(found.code, ""), *_rows(found.embedded, " (data)")],
        numbers=2,
    )
    console.line(text)


def _rows(code: Sequence[CodeObject], mark: str) -> Iterable[tuple[str, ...]]:
    from qola.report.inspection import compiler_of  # noqa: PLC0415

    for one in code:
        numbers = (str(len(one.kernels)), f"{one.size:,}")
        yield one.sha256[:16], one.arch, f"V{one.version}{mark}", compiler_of(one), *numbers
