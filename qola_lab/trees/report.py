"""Kernels of AITER trees, their differences, and the JSON of both (docs/guide/health.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from qola.common.version import __version__
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
