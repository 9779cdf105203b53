"""``qola compat`` and ``qola modules``: check an AITER tree."""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.cli.commands import add_command
from qola.cli.console import Console, Surroundings, align
from qola.cli.options import DEFAULT_TREE, add_options
from qola.compat.check import Report
from qola.compat.launches import check_launches
from qola.compat.run import examine
from qola.errors import ExitCode
from qola.fetch.fetched import tree_answers
from qola.plan.modules import ModuleReport, module_reports
from qola.version import docs_url


def add_commands(commands: Any) -> None:
    """Add compat and modules to the parser's subcommands."""
    _add_compat(commands)
    _add_modules(commands)


def _add_compat(commands: Any) -> None:
    parser = add_command(commands, "compat", _compat, (ExitCode.AITER, ExitCode.BROKEN))
    add_options(parser, "aiter_root", help=DEFAULT_TREE)
    add_options(parser, "patches_dir", help="also say which patches of this folder fit the tree")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="also build a small library of each module, and see that its entry points launch",
    )
    add_options(parser, "json", help=f"print JSON, errors too ({docs_url('guide/compat.md')})")


def _compat(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola compat``."""
    asked = None if args.aiter_root is None else around.directory / args.aiter_root
    patches = None if args.patches_dir is None else around.directory / args.patches_dir
    tree = find_tree(asked, around.environ)
    launches = partial(check_launches, environ=around.environ)
    report = examine(tree, patches, launches=launches if args.compile else None)
    if args.json:
        around.console.line(json.dumps(report.to_dict(), indent=2, sort_keys=True))
    else:
        _print(report, around.console)
    return ExitCode.BROKEN if report.counts["broken"] else ExitCode.DONE


def _print(report: Report, console: Console) -> None:
    cells = [
        (check.status, f"{check.name} {check.of}".strip(), check.said) for check in report.checks
    ]
    for line, check in zip(align(cells, 3), report.checks, strict=True):
        console.line(line)
        for finding in check.findings:
            lines = (f"{finding.place}: {finding.found}", f"expected {finding.expected}")
            fix = f"fix: {finding.fix}" if finding.fix else ""
            for text in filter(None, (*lines, fix)):
                console.line("          " + text.replace("\n", "\n            "))
    console.line(", ".join(f"{number} {status}" for status, number in report.counts.items()))


def _add_modules(commands: Any) -> None:
    parser = add_command(commands, "modules", _modules, (ExitCode.AITER,))
    add_options(parser, "aiter_root", help=DEFAULT_TREE)
    add_options(parser, "json", help=f"print JSON, errors too ({docs_url('reference/plan.md')})")


def _modules(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola modules``."""
    asked = None if args.aiter_root is None else around.directory / args.aiter_root
    tree = find_tree(asked, around.environ)
    with tree_answers(tree, around.environ) as answers:
        reports = answers.find(
            "modules", tuple[ModuleReport, ...], lambda: module_reports(read_tree(tree))
        )
    console = around.console
    if args.json:
        console.line(json.dumps([vars(report) for report in reports], indent=2, sort_keys=True))
        return ExitCode.DONE
    rows = [("built" if r.built else "-", r.name, r.kind, "; ".join(r.needs)) for r in reports]
    for line in align(rows, 4):
        console.line(line)
    causes: dict[str, list[str]] = {}
    for report in reports:
        if not report.built:
            causes.setdefault(report.cause, []).append(report.name)
    for cause, names in causes.items():
        console.line(f"\nnot built: {', '.join(names)}\n  {cause}")
    built = sum(report.built for report in reports)
    console.line(f"\n{len(reports)} modules, {built} built")
    return ExitCode.DONE
