"""Kernels of AITER trees, their differences, and a page and JSON of both (docs/guide/health.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any, Literal

from qola.common.version import __version__
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
from qola_base.errors import QolaError
from qola_base.json_types import JsonObject, json_fields
from qola_lab.trees.check import Check

SCHEMA = 1
"""Version of the JSON, increased with each incompatible change."""


class HealthError(QolaError, title="the trees cannot be compared"):
    """Trees without code objects, or of the same name."""


State = Literal["passed", "failed", "untried"]


@dataclass(frozen=True)
class KernelVerdict:
    """The outcome of emulated problems of a kernel.

    Attributes:
        problems: number of problems.
        worst: largest error as a share of its limit.
        reasons: errors with their problems, or why the kernel was not tried.
    """

    state: State
    problems: int = 0
    worst: float = 0.0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelHealth:
    """A kernel of a code object.

    Attributes:
        key: path of the code object, from ``hsa/`` on.
        bytes: size of the code object.
        vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, scratch, lds: see `Resources`.
        workgroup: the most work-items of a workgroup.
        waves: number of waves that a SIMD can hold, None for an arch with unknown rules.
        limit: the resource that prevents more waves.
        proven: names of its proven faults (docs/guide/health.md).
        verdict: None if it was not requested.
    """

    key: str
    arch: str
    sha256: str
    symbol: str
    bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    workgroup: int
    waves: int | None
    limit: str
    proven: tuple[str, ...] = ()
    verdict: KernelVerdict | None = None

    @property
    def state(self) -> State:
        """The emulated state; a proven fault counts as failed."""
        if self.proven:
            return "failed"
        return self.verdict.state if self.verdict else "untried"


@dataclass(frozen=True)
class TreeHealth:
    """An AITER tree.

    Attributes:
        name: the directory or wheel, or the name given to it.
        version: AITER's version, "" if the tree does not contain it.
        checks: levels of directions, and the checks that are not ok.
        unread: code objects that cannot be read, with the error.
        sample: verdicts of the sample of Composable Kernel's kernels, by arch and name, such as
            ``gfx950/fmha_fwd_...``.
    """

    name: str
    version: str
    checks: tuple[Check, ...]
    kernels: tuple[KernelHealth, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    sample: Mapping[str, KernelVerdict] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether a kernel or one of the sample failed."""
        states = [kernel.state for kernel in self.kernels]
        return "failed" in (*states, *(verdict.state for verdict in self.sample.values()))


@dataclass(frozen=True)
class Difference:
    """A kernel that differs between two trees.

    Attributes:
        before, after: names of the trees.
        rank: 0 is worst.
        kind: the worst change in a few words.
        changes: all changes, such as ``vgprs 256 -> 512``.
    """

    before: str
    after: str
    rank: int
    kind: str
    key: str
    symbol: str
    arch: str
    changes: str


@dataclass(frozen=True)
class HealthReport:
    """Trees in the given order, and the differences between each and the next."""

    trees: tuple[TreeHealth, ...]
    differences: tuple[Difference, ...]
    command: str = ""

    def to_json(self) -> JsonObject:
        """Return the JSON."""
        trees: list[Any] = [_tree(tree) for tree in self.trees]
        return {
            "schema": SCHEMA,
            "qola": __version__,
            "command": self.command,
            "trees": trees,
            "differences": [json_fields(one) for one in self.differences],
        }


def _tree(tree: TreeHealth) -> JsonObject:
    return {
        "name": tree.name,
        "version": tree.version,
        "checks": [check.to_dict() for check in tree.checks],
        "kernels": [_kernel(kernel) for kernel in tree.kernels],
        "unread": dict(tree.unread),
        "sample": {name: json_fields(verdict) for name, verdict in tree.sample.items()},
    }


def _kernel(kernel: KernelHealth) -> JsonObject:
    verdict = json_fields(kernel.verdict) if kernel.verdict else None
    return {**json_fields(kernel), "state": kernel.state, "verdict": verdict}


#: Kinds of differences, the worst first.
KINDS = (
    "fails now",
    "not tried any more",
    "spills more",
    "lower occupancy",
    "other resources",
    "passes now",
    "other code",
    "removed",
    "added",
)
_SPILLS = ("vgpr_spills", "sgpr_spills", "scratch")
_RESOURCES = ("vgprs", "agprs", "sgprs", *_SPILLS, "lds", "workgroup", "waves")


def compare_trees(trees: Sequence[TreeHealth]) -> tuple[Difference, ...]:
    """Return the differences between each tree and the next, the worst first."""
    found = [difference for pair in pairwise(trees) for difference in _differences(*pair)]
    order = {tree.name: number for number, tree in enumerate(trees)}
    return tuple(sorted(found, key=lambda d: (d.rank, order[d.after], d.key, d.symbol)))


def _differences(before: TreeHealth, after: TreeHealth) -> Iterator[Difference]:
    old, new = (_by_place(tree) for tree in (before, after))
    names = before.name, after.name
    for key, kernel in new.items():
        if key not in old:
            kind = "fails now" if kernel.state == "failed" else "added"
            yield _difference(names, kind, kernel, "added")
        elif kind := _kind(old[key], kernel):
            yield _difference(names, kind, kernel, ", ".join(_changes(old[key], kernel)))
    for key, kernel in old.items():
        if key not in new:
            yield _difference(names, "removed", kernel, "removed")
    for name in before.sample.keys() | after.sample.keys():
        was, now = (
            tree.sample[name].state if name in tree.sample else "untried"
            for tree in (before, after)
        )
        if kind := _kind_of_states(was, now):
            arch, _, symbol = name.rpartition("/")
            yield Difference(*names, KINDS.index(kind), kind, name, symbol, arch, f"{was} -> {now}")


def _by_place(tree: TreeHealth) -> dict[tuple[str, int], KernelHealth]:
    """Return kernels by code object and their number in it: other trees may rename symbols."""
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], KernelHealth] = {}
    for kernel in tree.kernels:
        found[kernel.key, seen[kernel.key]] = kernel
        seen[kernel.key] += 1
    return found


def _difference(
    names: tuple[str, str], kind: str, kernel: KernelHealth, changes: str
) -> Difference:
    rank = KINDS.index(kind)
    return Difference(*names, rank, kind, kernel.key, kernel.symbol, kernel.arch, changes)


def _kind(old: KernelHealth, new: KernelHealth) -> str:
    """Return the worst kind of a difference, "" for equal kernels."""
    if set(new.proven) - set(old.proven):
        return "fails now"
    kind = _kind_of_states(old.state, new.state)
    if kind or old.sha256 == new.sha256:
        return kind
    if any(getattr(new, name) > getattr(old, name) for name in _SPILLS):
        return "spills more"
    if (new.waves or 0) < (old.waves or 0):
        return "lower occupancy"
    if any(getattr(new, name) != getattr(old, name) for name in _RESOURCES):
        return "other resources"
    return "other code"


def _kind_of_states(old: State, new: State) -> str:
    """Return the kind of a difference of verdicts, "" if the code decides it."""
    if old == new or (old, new) == ("untried", "passed"):
        return ""
    return {"failed": "fails now", "passed": "passes now", "untried": "not tried any more"}[new]


def _changes(old: KernelHealth, new: KernelHealth) -> Iterator[str]:
    """Yield the changes in words."""
    if old.state != new.state:
        yield f"{old.state} -> {new.state}"
    if old.proven != new.proven:
        yield f"proven {', '.join(old.proven) or 'none'} -> {', '.join(new.proven) or 'none'}"
    for name in _RESOURCES:
        values = getattr(old, name), getattr(new, name)
        if values[0] != values[1]:
            yield f"{name} {values[0]} -> {values[1]}"
    if old.symbol != new.symbol:
        yield f"symbol {old.symbol} -> {new.symbol}"
    if old.sha256 != new.sha256:
        yield f"sha256 {old.sha256[:12]} -> {new.sha256[:12]}"


_WORST = 2
"""Differences up to this rank are highlighted: see `KINDS`."""
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
