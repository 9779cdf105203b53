"""The page of a health report: differences, faulty kernels, levels and all kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from qola.report.markup import (
    Cell,
    Columns,
    Section,
    bytes_cell,
    cell_of,
    document,
    folded_cell,
    grouped,
    note,
    number_cell,
    spills_cell,
    table_html,
    text_cell,
    warning_cell,
)
from qola_lab.trees.report import HealthReport, KernelHealth, TreeHealth

_WORST = 2
"""Differences up to this rank are highlighted: see `report.KINDS`."""
_UNSEEN = (
    "Verdicts are of an emulator that executes instructions one by one on a CPU: races in memory "
    "and time cannot be seen this way. A kernel without a verdict was not tried."
)


def render(report: HealthReport) -> str:
    """Return the HTML page of a report; its last table lists the kernels of the last tree."""
    trees = report.trees
    title = f"Kernel health of {', '.join(tree.name for tree in trees)}"
    facts = [f"{len(trees)} AITER trees" if len(trees) > 1 else f"AITER {trees[0].version}"]
    details = [("Command", f"<code>{escape(report.command)}</code>" if report.command else "")]
    return document(title, facts, _tiles(report), list(_sections(report)), details)


def _tiles(report: HealthReport) -> list[tuple[str, str]]:
    last = report.trees[-1].kernels
    states = [kernel.state for kernel in last]
    return [
        (f"Kernels of {report.trees[-1].name}", grouped(len(last))),
        ("Passed", grouped(states.count("passed"))),
        ("Failed, or with a proven fault", grouped(states.count("failed"))),
        ("Without a verdict", grouped(states.count("untried"))),
        ("Kernels that spill", grouped(sum(map(_spills, last)))),
        ("Differences", grouped(len(report.differences))),
    ]


def _spills(kernel: KernelHealth) -> bool:
    return bool(kernel.vgpr_spills or kernel.sgpr_spills or kernel.scratch)


def _sections(report: HealthReport) -> Iterator[Section]:
    """Yield the sections that are not empty."""
    if report.differences:
        yield Section("differences", "Differences, worst first", _differences_table(report))
    if failed := [row for tree in report.trees for row in _failed(tree)]:
        yield Section("failed", "Failed", _failed_table(failed))
    yield Section("trees", "Trees", _trees_table(report.trees))
    yield Section("checks", "Directions and checks", _checks_table(report.trees))
    last = report.trees[-1]
    if last.sample:
        yield Section("sample", "Sample of Composable Kernel's kernels", _sample_table(last))
    yield Section("kernels", f"Kernels of {last.name}", _kernels_table(last.kernels))
    yield Section("unseen", "Limits", note(_UNSEEN))


def _differences_table(report: HealthReport) -> str:
    columns: Columns = {
        "difference": lambda row: (warning_cell if row.rank <= _WORST else text_cell)(row.kind),
        "code object": cell_of("key", text_cell),
        "arch": cell_of("arch", text_cell),
        "changes": cell_of("changes", text_cell),
        "before": cell_of("before", text_cell),
        "after": cell_of("after", text_cell),
    }
    caption = "Each tree is compared with the one before it. Resources are from the metadata."
    wide = ("code object", "changes")
    return table_html(
        "differences-table", caption, report.differences, columns, wide=wide, filtered=True
    )


def _failed(tree: TreeHealth) -> Iterator[tuple[str, str, list[str]]]:
    """Yield tree, name and faults of each failed kernel, also of the sample."""
    for kernel in tree.kernels:
        if kernel.state == "failed":
            texts = [f"proven: {name}" for name in kernel.proven]
            texts += kernel.verdict.reasons if kernel.verdict else ()
            yield tree.name, kernel.key, texts
    for name, verdict in tree.sample.items():
        if verdict.state == "failed":
            yield tree.name, name, [*verdict.reasons]


def _failed_table(rows: Sequence[tuple[str, str, list[str]]]) -> str:
    columns: Columns = {
        "tree": lambda row: text_cell(row[0]),
        "kernel": lambda row: text_cell(row[1]),
        "fault": lambda row: folded_cell(row[2], warning=True),
    }
    caption = "Kernels that give wrong results, or make forbidden accesses, for the named problems."
    wide = ("kernel", "fault")
    return table_html("failed-table", caption, rows, columns, wide=wide, filtered=True)


def _trees_table(trees: Sequence[TreeHealth]) -> str:
    def count(state: str) -> Callable[[Any], Cell]:
        return lambda tree: number_cell(sum(kernel.state == state for kernel in tree.kernels))

    columns: Columns = {
        "tree": cell_of("name", text_cell),
        "version": cell_of("version", text_cell),
        "# kernels": lambda tree: number_cell(len(tree.kernels)),
        "# different code objects": lambda tree: number_cell(len({k.sha256 for k in tree.kernels})),
        "# passed": count("passed"),
        "# failed": count("failed"),
        "# spill": lambda tree: spills_cell(sum(map(_spills, tree.kernels))),
        "unread": lambda tree: text_cell(", ".join(tree.unread)),
    }
    return table_html("trees-table", "The trees, in the given order.", trees, columns)


def _checks_table(trees: Sequence[TreeHealth]) -> str:
    rows = [(tree, check) for tree in trees for check in tree.checks]
    columns: Columns = {
        "tree": lambda row: text_cell(row[0].name),
        "check": lambda row: text_cell(row[1].name),
        "of": lambda row: text_cell(row[1].of),
        "status": lambda row: text_cell(row[1].status),
        "result": lambda row: text_cell(row[1].result),
    }
    caption = "Levels of directions, assembly kernels, and checks of `qola compat` that are not ok."
    return table_html("checks-table", caption, rows, columns, wide=("result",), filtered=True)


def _sample_table(tree: TreeHealth) -> str:
    columns: Columns = {
        "kernel": lambda row: text_cell(row[0]),
        "state": lambda row: _state_cell(row[1].state),
        "# problems": lambda row: number_cell(row[1].problems),
        "reasons": lambda row: folded_cell(row[1].reasons),
    }
    caption = "The smallest kernels of each direction, compiled and emulated."
    wide = ("kernel", "reasons")
    return table_html("sample-table", caption, list(tree.sample.items()), columns, wide=wide)


def _state_cell(state: str) -> Cell:
    return warning_cell(state) if state == "failed" else text_cell(state)


def _kernels_table(kernels: Sequence[KernelHealth]) -> str:
    numbers = {
        **{"# VGPRs": "vgprs", "# AGPRs": "agprs", "# SGPRs": "sgprs"},
        **{"# scratch": "scratch", "# workgroup": "workgroup", "# waves": "waves"},
    }
    columns: dict[str, Callable[[Any], Cell]] = {
        "code object": cell_of("key", text_cell),
        "arch": cell_of("arch", text_cell),
        "state": cell_of("state", _state_cell),
        **{heading: cell_of(name, number_cell) for heading, name in numbers.items()},
        "limit": cell_of("limit", text_cell),
        "# spills": lambda kernel: spills_cell(kernel.vgpr_spills + kernel.sgpr_spills),
        "# LDS": cell_of("lds", bytes_cell),
        "# bytes": cell_of("bytes", bytes_cell),
        "sha256": lambda kernel: text_cell(kernel.sha256[:12]),
    }
    caption = (
        "Waves are those that a SIMD can hold, and the limit is the resource that prevents more. "
        "The JSON has the kernels of all trees."
    )
    wide = ("code object",)
    return table_html("kernels-table", caption, kernels, columns, wide=wide, filtered=True)
