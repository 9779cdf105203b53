"""``qola report``: a page about a build, and the same as JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qola.cli.commands import add_command
from qola.cli.console import Surroundings
from qola.cli.options import AITER, PLANNED_TREE, add_manifest, add_options
from qola.cli.plan import find_verdicts, request_of
from qola.codegen.types import LEVELS
from qola.errors import ExitCode, Finding, visible
from qola.inspect.explain import summary
from qola.plan import planner
from qola.plan.model import Plan
from qola.report.data import LeftOut, ReportError

_CODES = (ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.PLAN)


def add_commands(commands: Any) -> None:
    """Add report to the parser's subcommands."""
    parser = add_command(commands, "report", _report, _CODES, words="BUILT...")
    parser.add_argument(
        "words", nargs="*", metavar="BUILT", help="a library, or a bundle: a directory with them"
    )
    parser.add_argument(
        *("-o", "--output"),
        required=True,
        metavar="FILE.html",
        help="the page; FILE.json has the same for programs",
    )
    add_manifest(parser, needed=False, more=True)
    parser.add_argument(
        "--plan", type=Path, metavar="FILE", help="plan.json of the build, instead of the manifest"
    )
    parser.add_argument(
        "--execution-log",
        type=Path,
        metavar="FILE",
        help="what --execution_log_json_file of the build wrote: seconds, and caches",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE.json", help="JSON of an earlier report"
    )
    add_options(parser, "aiter_root", help=PLANNED_TREE)
    add_options(parser, *AITER[1:], "skip_checkout", "arch", "mode")
    # What `request_of` reads beside these.
    parser.set_defaults(
        name=None, require=LEVELS[0], rocm_version=None, override_aiter_commit=False
    )


def _report(args: argparse.Namespace, around: Surroundings) -> None:
    """``qola report``."""
    # Not imported for other commands: it needs packages that an installation may lack.
    from qola.report.write import libraries_in, read_date, write_report  # noqa: PLC0415

    output: Path = around.directory / args.output
    if output.suffix != ".html":
        place, expected = f"--output {args.output}", "a file that ends in .html"
        fix = f"--output {Path(args.output).with_suffix('.html')}"
        raise ReportError(Finding(place, "another end", expected, fix))
    if not args.words:
        args.parser.error("the following arguments are required: BUILT")
    dates = {read_date(around.directory / word) for word in args.words} - {""}
    libraries = [path for word in args.words for path in libraries_in(around.directory / word)]
    plan, left_out = _planned(args, around)
    report = write_report(
        output,
        libraries,
        plan,
        _place(args.execution_log, around),
        left_out,
        _place(args.compare, around),
        date=max(dates, default=""),
        command=visible(args.command_line),
    )
    found = f"{len(report.kernels)} kernels of {len(report.batches)} compiles"
    around.console.line(f"{args.output}: {found}, {len(report.assembly)} assembly kernels")


def _planned(
    args: argparse.Namespace, around: Surroundings
) -> tuple[Plan | None, tuple[LeftOut, ...] | None]:
    """Return the plan, and what it leaves out, as far as somebody says what was built."""
    if args.plan:
        from qola.report.write import read_plan  # noqa: PLC0415

        return read_plan(around.directory / args.plan), None
    if not args.manifest:
        return None, None
    request = request_of(args, around)
    plan = planner.plan(request)
    rules = summary(find_verdicts(request))
    return plan, tuple(
        LeftOut(rule.module, rule.direction, rule.role, rule.rule, rule.count)
        for rule in rules
        if not rule.kept
    )


def _place(path: Path | None, around: Surroundings) -> Path | None:
    return None if path is None else around.directory / path
