"""Compares the kernels of two reports: added, removed and changed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qola.report.data import Kernel, Report

#: Fields to compare of a kernel in both builds.
COMPARED = (
    *("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills"),
    *("scratch", "lds", "workgroup", "waves", "code_bytes"),
)

_Key = tuple[str, str, int]


@dataclass(frozen=True)
class Change:
    """A changed field of a kernel."""

    name: str
    arch: str
    what: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Comparison:
    """A build compared with an earlier one; names of kernels include their arch."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changes: tuple[Change, ...]


def compare_reports(before: Report, after: Report) -> Comparison:
    """Compare two reports.

    Kernels are matched by kernel instance and arch, or by symbol and arch if a report does not know
    kernel instances.
    """
    named = all(kernel.name for kernel in (*before.kernels, *after.kernels))
    old, new = _by_key(before.kernels, named), _by_key(after.kernels, named)
    changes = [
        Change(name, arch, field, getattr(old[key], field), getattr(kernel, field))
        for key, kernel in new.items()
        for name, arch, _ in [key]
        if key in old
        for field in COMPARED
        if getattr(old[key], field) != getattr(kernel, field)
    ]
    added, removed = _names(new.keys() - old.keys()), _names(old.keys() - new.keys())
    return Comparison(before.name, added, removed, tuple(changes))


def _by_key(kernels: Iterable[Kernel], named: bool) -> dict[_Key, Kernel]:
    """Return kernels by name, arch, and index among equal ones."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[_Key, Kernel] = {}
    for kernel in kernels:
        name = kernel.name if named else kernel.symbol
        found[name, kernel.arch, seen[name, kernel.arch]] = kernel
        seen[name, kernel.arch] += 1
    return found


def _names(keys: Iterable[_Key]) -> tuple[str, ...]:
    return tuple(sorted({f"{name}, {arch}" for name, arch, _ in keys}))
