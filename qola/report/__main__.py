"""The program of a bundle's output group ``report``, and of ``[build] max_bytes``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.report.assemble import make_report
from qola.report.execution_log import timestamp
from qola.report.library import read_library
from qola.report.size_budget import check_size
from qola.report.write import read_plan, write_report
from qola_base.rule_main import run_main


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its JSON; with a budget, check a library and write an empty file."""
    parser = argparse.ArgumentParser(prog="qola.report", description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="plan.json")
    parser.add_argument("--output", required=True, type=Path, help="the page: a .html file")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="the budget of one library")
    parser.add_argument("--date", default="", type=timestamp, help="UTC time of the build to state")
    parser.add_argument("--command", default="", help="the command to state")
    parser.add_argument("libraries", nargs="+", type=Path, help="libraries of the plan")
    args = parser.parse_args(argv)
    return run_main(lambda: _write(args))


def _write(args: argparse.Namespace) -> None:
    if args.max_bytes is None:
        plan = read_plan(args.plan)
        write_report(args.output, args.libraries, plan, date=args.date, command=args.command)
        return
    (library,) = args.libraries
    # Plan and report, which take seconds to read, are for the error only.
    if library.stat().st_size > args.max_bytes:
        report = make_report(read_plan(args.plan), [read_library(library)])
        check_size(report, args.max_bytes)
    args.output.write_bytes(b"")


if __name__ == "__main__":
    sys.exit(main())
