"""``qola modules``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.cli.console import Surroundings, align
from qola.cli.options import DEFAULT_TREE, add_command, add_options
from qola.errors import ExitCode
from qola.fetch.fetched import tree_answers
from qola.plan.modules import ModuleReport, module_reports


def add_commands(commands: Any) -> None:
    """Add modules to the parser's subcommands."""
    parser = add_command(commands, "modules", _modules, (ExitCode.AITER,))
    add_options(parser, "aiter_root", help=DEFAULT_TREE)
    add_options(parser, "json", help="print JSON, errors too (docs/reference/plan.md)")


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
