"""Finds kernels with a fault that the emulator has proven.

proven_faults.json describes the faults: assembly kernels by the digest of their code object, CK's
kernels by their name or by fields of their config in a tree with a certain text, and a minimal
problem as the words of `qola dispatch`. docs/guide/health.md describes each of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from qola.aiter.known_faults import holds
from qola.aiter.tree import AiterTree
from qola.common.layout import OWN_PATCHES
from qola.common.version import docs_url
from qola_base.errors import Finding, Severity
from qola_base.json_types import Scalar

FILE = Path(__file__).with_name("proven_faults.json")
REFUSE = "refuse_proven_faults"
"""Key of [build] that makes a proven fault an error."""


@dataclass(frozen=True)
class ProvenFault:
    """A fault of kernels.

    Attributes:
        name: identifies it; the page's anchor.
        archs: on which the problem was emulated.
        problem: a minimal problem, FIELD=VALUE words of `qola dispatch`.
        fault: the wrong result, one sentence.
        fixed: the AITER with a correct kernel; "" if none is known.
        patch: the file below patches/ that corrects Composable Kernel; "" if there is none.
        code_objects: names of assembly kernels by the sha256 of their code object.
        direction: of CK's kernels.
        fields: values that the config of CK's kernels has.
        kernels: names of CK's kernels, with * and ?, in place of `fields`.
        when: texts of CK's files, as in known_faults.json.
    """

    name: str
    archs: Sequence[str]
    problem: str
    fault: str
    fixed: str = ""
    patch: str = ""
    code_objects: Mapping[str, str] = field(default_factory=dict)
    direction: str = ""
    fields: Mapping[str, Scalar] = field(default_factory=dict)
    kernels: Collection[str] = ()
    when: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class KernelFacts:
    """A kernel that may have a fault.

    Attributes:
        name: the plan's name, or the key of a code object.
        sha256: of the code object of an assembly kernel, "" for a kernel of CK.
        fields: config of a kernel of CK.
    """

    name: str
    archs: tuple[str, ...]
    sha256: str = ""
    direction: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)


@cache
def read_proven_faults() -> tuple[ProvenFault, ...]:
    """Return the faults of proven_faults.json."""
    faults = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(ProvenFault(**fault) for fault in faults)


@cache
def faults_by_digest() -> Mapping[str, tuple[ProvenFault, ...]]:
    """Return the faults of each faulty code object of an assembly kernel, by its sha256."""
    found: dict[str, tuple[ProvenFault, ...]] = {}
    for fault in read_proven_faults():
        for sha256 in fault.code_objects:
            found[sha256] = (*found.get(sha256, ()), fault)
    return found


def find_proven_faults(
    tree: AiterTree, archs: Collection[str], kernels: Iterable[KernelFacts], *, refuse: bool
) -> Iterator[Finding]:
    """Yield a finding for each proven fault that kernels of a plan have.

    Args:
        archs: that are planned.
        refuse: whether a fault is an error instead of a warning.
    """
    every = list(kernels)
    for fault in read_proven_faults():
        concerned = set(fault.archs) & set(archs)
        if not concerned or not all(holds(tree, condition) for condition in fault.when):
            continue
        found = [kernel.name for kernel in every if has_fault(kernel, fault, concerned)]
        if found:
            yield _finding(fault, sorted(concerned), found, refuse=refuse)


def has_fault(kernel: KernelFacts, fault: ProvenFault, archs: Collection[str]) -> bool:
    """Whether a kernel for one of some archs is among those of a fault."""
    if kernel.sha256:
        return kernel.sha256 in fault.code_objects
    if kernel.direction != fault.direction or set(kernel.archs).isdisjoint(archs):
        return False
    if fault.kernels:
        return any(fnmatchcase(kernel.name, pattern) for pattern in fault.kernels)
    return bool(fault.fields) and all(
        kernel.fields.get(name) == value for name, value in fault.fields.items()
    )


def _finding(fault: ProvenFault, archs: list[str], names: list[str], *, refuse: bool) -> Finding:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    severity: Severity = "error" if refuse else "warning"
    fix = f"use {fault.fixed}" if fault.fixed else "leave these kernels out by a variant"
    if fault.patch:
        fix = f'[qola].patches_dir = "{OWN_PATCHES}", which has {fault.patch}'
    if refuse:
        fix += f", or remove [build].{REFUSE}"
    return Finding(
        f"{names[0]}{more}",
        f"{fault.fault} ({', '.join(archs)}: qola dispatch {fault.problem})",
        "kernels without a proven fault",
        f"{fix} ({docs_url(f'guide/health.md#{fault.name}')})",
        severity,
    )
