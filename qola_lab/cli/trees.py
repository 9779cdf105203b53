"""``qola compat``, ``qola modules``, ``qola health``: check and compare AITER trees."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree, wheel_tree
from qola.cli.commands import add_command
from qola.cli.console import Console, Surroundings, align
from qola.cli.options import DEFAULT_TREE, add_options, place_of
from qola.common.extras import needs
from qola.common.version import docs_url
from qola.fetch.fetched import tree_answers
from qola.plan.modules import ModuleReport, module_reports
from qola_base.errors import ExitCode, Finding
from qola_base.files import write_if_changed
from qola_lab.trees.check import Report
from qola_lab.trees.emulate import EmulationRequest, emulate_trees
from qola_lab.trees.examine import examine
from qola_lab.trees.launches import check_launches
from qola_lab.trees.report import HealthError, HealthReport, compare_trees, render

_SHOWN = 20
"""Differences to print; the page and the JSON have all of them."""


def add_commands(commands: Any) -> None:
    """Add compat, modules and health to the parser's subcommands."""
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
    codes = (ExitCode.AITER, ExitCode.CODEGEN, ExitCode.TOOLCHAIN, ExitCode.NOT_BUILT)
    health = add_command(commands, "health", _health, (*codes, ExitCode.WRONG))
    health.add_argument(
        "--aiter",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]TREE",
        help="AITER trees or wheels (.whl), in the order to compare them; each may get a name "
        "(default: the pinned AITER)",
    )
    names = (
        "only code objects of such names, with * and ?, such as 'hsa/gfx950/fmha_*', and only "
        "kernels of such names in the sample; repeatable"
    )
    add_options(health, "kernels", help=names)
    health.add_argument(
        "--emulate",
        action="store_true",
        help="also build the assembly kernels of attention and a sample of Composable Kernel's, "
        "and try them on the emulator; verdicts are cached as those of qola verify",
    )
    samples = "problems for each kernel with --emulate (default: %(default)s)"
    add_options(health, "samples", default=1, help=samples)
    add_options(health, "seed", "output")
    add_options(health, "json", help=f"print JSON, errors too ({docs_url('guide/health.md')})")
    add_options(health, "jobs", help="parallel actions and emulated problems")


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


def _health(args: argparse.Namespace, around: Surroundings) -> int:
    """``qola health``."""
    output = place_of(args.output, around)
    if output and output.suffix != ".html":
        expected = "a file that ends in .html"
        raise HealthError(Finding("--output", args.output, expected, "-o health.html"))
    with needs("report", "qola health"):
        from qola_lab.trees.code_objects import Reader  # noqa: PLC0415

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
        _print_health(report, around)
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


def _print_health(report: HealthReport, around: Surroundings) -> None:
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
            reason = "".join(f": {text}" for text in verdict.reasons[:1])
            console.line(f"  sample: {verdict.state}: {name}{reason}")
    shown = report.differences[:_SHOWN]
    cells = [(one.kind, one.key, f"{one.before} -> {one.after}", one.changes) for one in shown]
    for line in align(cells, 4) if cells else []:
        console.line(line)
    if more := len(report.differences) - len(shown):
        console.line(f"and {more} more differences (--output, --json)")
