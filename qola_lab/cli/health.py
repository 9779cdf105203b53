"""``qola health``: compare the kernels of AITER trees."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qola.checkout.default_tree import find_tree, wheel_tree
from qola.cli.commands import add_command
from qola.cli.console import Surroundings, align
from qola.cli.options import add_options, positive
from qola.common.extras import needs
from qola.common.version import docs_url
from qola_base.errors import ExitCode, Finding
from qola_base.files import write_if_changed
from qola_lab.health.compare import compare_trees
from qola_lab.health.data import HealthError, HealthReport, KernelVerdict
from qola_lab.health.emulate import EmulationRequest, emulate_trees
from qola_lab.health.page import render

_SHOWN = 20
"""Differences to print; the page and the JSON have all of them."""


def add_commands(commands: Any) -> None:
    """Add health to the parser's subcommands."""
    codes = (ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.NOT_BUILT)
    parser = add_command(commands, "health", _health, (*codes, ExitCode.WRONG))
    parser.add_argument(
        "--aiter",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]TREE",
        help="AITER trees or wheels (.whl), in the order to compare them; each may get a name "
        "(default: the pinned AITER)",
    )
    parser.add_argument(
        "--kernels",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only code objects of such names, with * and ?, such as 'hsa/gfx950/fmha_*', and only "
        "kernels of such names in the sample; repeatable",
    )
    parser.add_argument(
        "--emulate",
        action="store_true",
        help="also build the assembly kernels of attention and a sample of Composable Kernel's, "
        "and try them on the emulator; verdicts are cached as those of qola verify",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        default=1,
        metavar="N",
        help="problems for each kernel with --emulate (default: %(default)s)",
    )
    add_options(parser, "seed")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        help="also write a page there, in one file",
    )
    add_options(parser, "json", help=f"print JSON, errors too ({docs_url('guide/health.md')})")
    add_options(parser, "jobs", help="parallel actions and emulated problems")


def _health(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola health``."""
    output = args.output and around.directory / args.output
    if output and output.suffix != ".html":
        expected = "a file that ends in .html"
        raise HealthError(Finding("--output", args.output, expected, "-o health.html"))
    with needs("report", "qola health"):
        from qola_lab.health.read import Reader  # noqa: PLC0415

    roots = _roots(args.aiter, around)
    reader = Reader(args.kernels)
    trees = [reader.read(name, root) for name, root in roots.items()]
    if args.emulate:
        request = EmulationRequest(
            args.samples, args.seed, tuple(args.kernels), args.jobs, quiet=args.quiet
        )
        trees = emulate_trees(trees, list(roots.values()), request, around.environ)
    report = HealthReport(tuple(trees), compare_trees(trees), args.command_line)
    if output:
        write_if_changed(output, render(report))
    if args.json:
        around.console.json(report.to_json())
    else:
        _print(report, around)
    return ExitCode.WRONG if trees[-1].failed else ExitCode.DONE


def _roots(words: Sequence[str], around: Surroundings) -> dict[str, Path]:
    """Return the trees by name.

    Raises:
        HealthError: two trees have the same name.
    """
    if not words:
        root = find_tree(None, around.environ)
        return {root.name: root}
    found: dict[str, Path] = {}
    for word in words:
        name, _, place = word.rpartition("=")
        path = around.directory / place
        name = name or path.absolute().name
        if name in found:
            fix = f"name it: --aiter OTHER={place}"
            raise HealthError(Finding("--aiter", f"two trees named {name}", "other names", fix))
        found[name] = wheel_tree(path, around.environ) if path.suffix == ".whl" else path
    return found


def _print(report: HealthReport, around: Surroundings) -> None:
    console = around.console
    for tree in report.trees:
        states = [kernel.state for kernel in tree.kernels]
        counts = ", ".join(
            f"{states.count(state)} {state}" for state in ("passed", "failed", "untried")
        )
        console.line(f"{tree.name}: {len(tree.kernels)} kernels: {counts}")
        for check in tree.checks:
            if check.name == "level":
                console.line(f"  {check.of}: {check.said}")
        for kernel in tree.kernels:
            if kernel.state == "failed":
                faults = [*(f"proven fault {name}" for name in kernel.proven)]
                faults += kernel.verdict.reasons[:1] if kernel.verdict else []
                console.line(f"  failed: {kernel.key}: {'; '.join(faults)}")
        for name, verdict in tree.sample.items():
            console.line(f"  sample: {verdict.state}: {name}{_first_reason(verdict)}")
    shown = report.differences[:_SHOWN]
    cells = [(one.kind, one.key, f"{one.before} -> {one.after}", one.changes) for one in shown]
    for line in align(cells, 4) if cells else []:
        console.line(line)
    if more := len(report.differences) - len(shown):
        console.line(f"and {more} more differences (--output, --json)")


def _first_reason(verdict: KernelVerdict) -> str:
    return f": {verdict.reasons[0]}" if verdict.reasons else ""
