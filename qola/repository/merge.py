"""The union of the kernel instances of several plans: each is there once, whoever plans it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.errors import Finding, PlanError
from qola.plan.model import HeaderSet, Plan, PlannedKernel

Plans = Mapping[Path, Plan]
"""Plans by the directory of their manifest's repository."""


@dataclass(frozen=True)
class Copy:
    """A generated file that the kernel repository takes over.

    Attributes:
        sha256: its digest as planned.
    """

    path: str
    source: Path
    sha256: str


@dataclass(frozen=True)
class MergedPackage:
    """A package of the kernel repository, with the kernel instances of all plans.

    Attributes:
        headers: what the kernel instances of all plans include.
        kernels: the kernel instances, sorted by name.
        sources: of these, in the same order.
        batches: sources of batches.
        members: names of the kernel instances of each batch, by its name.
    """

    name: str
    copts: tuple[str, ...]
    headers: HeaderSet
    kernels: tuple[PlannedKernel, ...]
    sources: tuple[Copy, ...]
    batches: tuple[Copy, ...]
    members: Mapping[str, tuple[str, ...]]
    entries: tuple[Copy, ...]


def merge(plans: Plans) -> tuple[MergedPackage, ...]:
    """Return the packages of several plans, sorted by name.

    Raises:
        PlanError: two plans have different sources, headers or flags under one name, or one names
            what it does not have.
    """
    _check_agreement(plans.values())
    found: dict[str, dict[str, tuple[Path, PlannedKernel]]] = {}
    for root, plan in plans.items():
        for kernel in plan.kernels:
            if kernel.package not in plan.packages:
                raise PlanError(
                    Finding(
                        f"kernel instance {kernel.name}",
                        f"no package {kernel.package} in the plan of {plan.name}",
                        "a package of the plan",
                        "bazel fetch --force plans anew",
                    )
                )
            found.setdefault(kernel.package, {}).setdefault(kernel.name, (root, kernel))
    return tuple(
        _package(
            name,
            {root: plan for root, plan in plans.items() if name in plan.packages},
            [kernels[kernel] for kernel in sorted(kernels)],
        )
        for name, kernels in sorted(found.items())
    )


def _package(
    name: str, plans: Plans, kernels: Sequence[tuple[Path, PlannedKernel]]
) -> MergedPackage:
    """Return a package of the plans that have it.

    Args:
        kernels: its kernel instances, each with the directory of the plan it is taken from.
    """
    settings = [plan.packages[name] for plan in plans.values()]
    # A plan names the headers that its own kernel instances include.
    sets = [plan.header_set(settings[0].headers) for plan in plans.values()]
    return MergedPackage(
        name,
        settings[0].copts,
        HeaderSet(
            settings[0].headers,
            _in_order(headers.include_dirs for headers in sets),
            tuple(sorted({file for headers in sets for file in headers.files})),
        ),
        tuple(kernel for _, kernel in kernels),
        tuple(Copy(f"{k.name}.cpp", root / k.source, k.sha256) for root, k in kernels),
        # A batch's name stands for its kernel instances.
        _once(
            Copy(f"{batch.name}.cpp", root / batch.file, batch.sha256)
            for root, plan in plans.items()
            for batch in plan.batches
            if batch.package == name
        ),
        {
            batch.name: tuple(plan.kernels[index].name for index in batch.kernels)
            for plan in plans.values()
            for batch in plan.batches
            if batch.package == name
        },
        _once(
            Copy(f"{kernel.entry}.cpp", root / source.file, source.sha256)
            for root, kernel in kernels
            for module in plans[root].with_kernels
            if module.name == kernel.module
            for source in module.entry_sources
            if source.name == kernel.entry
        ),
    )


def _once(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """Return the first copy for each path, sorted by path."""
    found: dict[str, Copy] = {}
    for copy in copies:
        found.setdefault(copy.path, copy)
    return tuple(found[path] for path in sorted(found))


def _meanings(plan: Plan) -> Iterator[tuple[str, str, object]]:
    """Yield what plans have to agree on: a name, what it may have two of, and what it means."""
    for name, package in plan.packages.items():
        yield f"package {name}", "settings", (package.copts, package.headers)
    for kernel in plan.kernels:
        of = f"sources in package {kernel.package}"
        yield f"kernel instance {kernel.name}", of, kernel.sha256
        yield f"kernel instance {kernel.name}", f"archs in package {kernel.package}", kernel.archs
    for batch in plan.batches:
        yield f"batch {batch.name}", f"sources in package {batch.package}", batch.sha256
    for module in plan.with_kernels:
        for source in module.entry_sources:
            yield f"entry source {source.name}", "texts", source.sha256


def _check_agreement(plans: Iterable[Plan]) -> None:
    """Refuse plans that mean different things by one name: they are of different trees."""
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for plan in plans:
        for name, what, meaning in _meanings(plan):
            first, user = seen.setdefault((name, what), (meaning, plan.name))
            if first != meaning:
                raise PlanError(
                    Finding(
                        name,
                        f"two {what}: in the plans of {user} and {plan.name}",
                        "one: manifests that share a kernel repository share an AITER tree",
                        "declare an AITER source of its own for one of them",
                    )
                )


def _in_order(orders: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the union of lists that leave out different parts of one order, in that order."""
    merged: list[str] = []
    for order in orders:
        position = 0
        for item in order:
            if item not in merged:
                merged.insert(position, item)
            position = merged.index(item) + 1
    return tuple(merged)
