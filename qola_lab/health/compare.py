"""Compares the kernels of consecutive trees, the worst difference first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from qola_lab.health.data import Difference, KernelHealth, State, TreeHealth

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
