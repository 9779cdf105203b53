"""``qola compat`` and ``qola modules``: check an AITER tree."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.cli.commands import add_command
from qola.cli.console import Console, Surroundings, align
from qola.cli.options import DEFAULT_TREE, add_options, place_of
from qola.common.version import docs_url
from qola.fetch.fetched import tree_answers
from qola.plan.modules import ModuleReport, module_reports
from qola_base.errors import ExitCode
from qola_lab.compat.check import Report
from qola_lab.compat.launches import check_launches
from qola_lab.compat.run import examine


def add_commands(commands: Any) -> None:
    """Add compat and modules to the parser's subcommands."""
    compat = add_command(commands, "compat", _compat, (ExitCode.AITER, ExitCode.BROKEN))
    add_options(compat, "aiter_root", help=DEFAULT_TREE)
    add_options(compat, "patches_dir", help="also say which patches of this folder fit the tree")
    compat.add_argument(
        "--compile",
        action="store_true",
        help="also build a small library of each module, and see that its entry points launch",
    )
    add_options(compat, "json", help=f"print JSON, errors too ({docs_url('guide/compat.md')})")
    modules = add_command(commands, "modules", _modules, (ExitCode.AITER,))
    add_options(modules, "aiter_root", help=DEFAULT_TREE)
    add_options(modules, "json")


def _compat(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola compat``."""
    tree = find_tree(place_of(args.aiter_root, around), around.environ)
    launches = partial(check_launches, environ=around.environ) if args.compile else None
    report = examine(tree, place_of(args.patches_dir, around), launches=launches)
    if args.json:
        around.console.json(report.to_dict())
    else:
        _print(report, around.console)
    return ExitCode.BROKEN if report.counts["broken"] else ExitCode.DONE


def _print(report: Report, console: Console) -> None:
    cells = [(c.status, f"{c.name} {c.of}".strip(), c.said) for c in report.checks]
    for line, check in zip(align(cells, 3), report.checks, strict=True):
        console.line(line)
        for finding in check.findings:
            fix = (f"fix: {finding.fix}",) if finding.fix else ()
            found, expected = f"{finding.place}: {finding.found}", f"expected {finding.expected}"
            for text in (found, expected, *fix):
                console.line("          " + text.replace("\n", "\n            "))
    console.line(", ".join(f"{number} {status}" for status, number in report.counts.items()))


def _modules(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola modules``."""
    tree = find_tree(place_of(args.aiter_root, around), around.environ)
    with tree_answers(tree, around.environ) as answers:
        reports = answers.find(
            "modules", tuple[ModuleReport, ...], lambda: module_reports(read_tree(tree))
        )
    console = around.console
    if args.json:
        console.json([vars(report) for report in reports])
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
    console.line(f"\n{len(reports)} modules, {sum(r.built for r in reports)} built")
    return ExitCode.DONE
