"""Estimates what a plan costs to build, in time and size, from measured costs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from qola.inspect.costs import ALL, Cost, Costs
from qola.layout import TRITON
from qola.plan.model import GeneratedSource, KernelInstance, Plan, TorchModule, TritonKernel

#: The role of what a library has beside kernel instances.
SOURCES = "dispatch, entry"


@dataclass(frozen=True)
class Compile:
    """One source to compile: a batch of kernel instances, one of them, or a source of a library.

    Attributes:
        name: label of its target without the repository.
        kernels: number of kernel instances in it.
        direction: the direction of a kernel instance; all for a source of the library. In Triton,
            the kernel's name.
        measured: costs of this role were measured, not borrowed from another one.
    """

    name: str
    module: str
    kernels: int
    direction: str
    role: str
    cost: Cost
    measured: bool


@dataclass(frozen=True)
class Row:
    """The cost of a group of compiles: all kernel instances of a role, or a module's sources."""

    module: str
    direction: str
    role: str
    kernels: int
    compiles: int
    cpu_seconds: float
    object_bytes: float
    linked_bytes: float
    measured: bool


@dataclass(frozen=True)
class Estimate:
    """The cost of building a plan from an empty cache.

    Attributes:
        cores: cores that compile at the same time.
        longest_seconds: the longest single compile, which no number of cores makes shorter.
        source: how the costs were measured.
        cpu: the processor that they were measured on.
    """

    rows: tuple[Row, ...]
    cores: int
    longest_seconds: float
    source: str
    cpu: str

    @property
    def cpu_seconds(self) -> float:
        """Seconds of one core."""
        return sum(row.cpu_seconds for row in self.rows)

    @property
    def wall_seconds(self) -> float:
        """Seconds until everything is compiled, with all cores busy."""
        return max(self.cpu_seconds / self.cores, self.longest_seconds)

    @property
    def object_bytes(self) -> float:
        """Bytes of all object files: what a cache holds."""
        return sum(row.object_bytes for row in self.rows)

    def library_bytes(self) -> dict[str, float]:
        """Return the size of each module's library."""
        sizes: dict[str, float] = {}
        for row in self.rows:
            sizes[row.module] = sizes.get(row.module, 0.0) + row.linked_bytes
        return sizes

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, seconds and bytes rounded to whole numbers."""
        return {
            "cores": self.cores,
            "cpu_seconds": round(self.cpu_seconds),
            "wall_seconds": round(self.wall_seconds),
            "longest_seconds": round(self.longest_seconds),
            "object_bytes": round(self.object_bytes),
            "library_bytes": {name: round(n) for name, n in self.library_bytes().items()},
            "measured": self.source,
            "rows": [
                {k: round(v) if isinstance(v, float) else v for k, v in asdict(row).items()}
                for row in self.rows
            ],
        }


def compiles(plan: Plan, costs: Costs) -> tuple[Compile, ...]:
    """Return what is compiled from an empty cache, in the plan's order, and what each costs."""
    found: list[Compile] = []
    for module in plan.with_kernels:
        groups: dict[tuple[str, str], dict[str, list[KernelInstance]]] = {}
        for name, kernel in zip(plan.compiled_as(module), plan.kernels_of(module), strict=True):
            group = groups.setdefault((kernel.direction, kernel.role), {})
            group.setdefault(f"{kernel.package}:{name}", []).append(kernel)
        for (direction, role), batches in groups.items():
            measured = (direction, role) in costs.kernels
            points = costs.kernels[(direction, role) if measured else _kin(costs, direction)]
            found += [
                Compile(
                    name,
                    module.name,
                    len(batch),
                    direction,
                    role,
                    _together(points, batch),
                    measured,
                )
                for name, batch in batches.items()
            ]
        found += [
            Compile(
                f"{module.name}:{source.name}",
                module.name,
                0,
                ALL,
                SOURCES,
                _source_cost(costs, source, groups),
                # No source that includes PyTorch's headers was measured.
                not isinstance(module, TorchModule),
            )
            for source in module.sources
            if source.archs in ((), plan.archs)
        ]
    for in_triton in plan.triton if costs.triton else ():
        found += _triton(in_triton, costs.triton)
    return tuple(found)


def _triton(
    kernel: TritonKernel, costs: Mapping[str, Sequence[tuple[int, Cost]]]
) -> Iterator[Compile]:
    """Yield the compiles of a kernel in Triton, one for each arch and choice.

    What a user's own costs is not known: as the dearest of qola's.
    """
    dearest = max(costs, key=lambda name: (costs[name][-1][1].cpu_seconds, name))
    measured = kernel.own and kernel.function in costs
    points = costs[kernel.function if measured else dearest]
    for instance in kernel.instances:
        hdim = instance.choices.get("HDIM", "")
        place = int(hdim) if hdim.isdecimal() else 0
        yield Compile(
            instance.name,
            TRITON,
            1,
            kernel.name,
            kernel.function,
            _at(points, place),
            measured,
        )


def estimate(plan: Plan, costs: Costs, cores: int) -> Estimate:
    """Estimate what a plan costs to build on `cores` cores with nothing in a cache.

    Linking is not part of it: seconds, next to compiling.
    """
    groups: dict[tuple[str, str, str], list[Compile]] = {}
    for one in compiles(plan, costs):
        groups.setdefault((one.module, one.direction, one.role), []).append(one)
    longest = max((c.cost.cpu_seconds for group in groups.values() for c in group), default=0.0)
    rows = tuple(_row(group) for group in groups.values())
    return Estimate(rows, cores, longest, costs.source, costs.cpu)


def _source_cost(
    costs: Costs,
    source: GeneratedSource,
    groups: Mapping[tuple[str, str], Mapping[str, Sequence[KernelInstance]]],
) -> Cost:
    """Return the cost of a dispatch by the number it calls; an entry source calls none."""
    called = sum(
        sum(map(len, batches.values()))
        for (direction, _), batches in groups.items()
        if source.role == "dispatch" and direction == source.direction
    )
    points = costs.dispatches.get(source.direction) or next(iter(costs.dispatches.values()))
    return _on_line(points, called)


def _row(group: Sequence[Compile]) -> Row:
    first = group[0]
    return Row(
        first.module,
        first.direction,
        first.role,
        sum(one.kernels for one in group),
        len(group),
        sum(one.cost.cpu_seconds for one in group),
        sum(one.cost.object_bytes for one in group),
        sum(one.cost.linked_bytes for one in group),
        first.measured,
    )


def _together(points: Sequence[tuple[int, Cost]], batch: Sequence[KernelInstance]) -> Cost:
    """Return the cost of kernel instances in one compile: all but the first cost less."""
    first, *others = (_at(points, _hdim(kernel)).for_archs(len(kernel.archs)) for kernel in batch)
    for cost in others:
        further = replace(cost, cpu_seconds=cost.further_cpu_seconds, host_cpu_seconds=0.0)
        first = first.scaled(1, further, 1)
    return first


def _hdim(kernel: KernelInstance) -> int:
    fields = kernel.fields.items()
    return max((v for k, v in fields if k.startswith("hdim_") and isinstance(v, int)), default=0)


def _kin(costs: Costs, direction: str) -> tuple[str, str]:
    """Return the role to borrow from: the dearest of the same direction, else of all."""
    own = [key for key in costs.kernels if key[0] == direction] or list(costs.kernels)
    return max(own, key=lambda key: (costs.kernels[key][-1][1].cpu_seconds, key))


def _at(points: Sequence[tuple[int, Cost]], place: int) -> Cost:
    """Return the cost at a head dimension: between measured ones a straight line."""
    for low, high in pairwise(points):
        if low[0] <= place <= high[0]:
            return _on_line((low, high), place)
    return points[0][1] if place < points[0][0] else points[-1][1]


def _on_line(points: Sequence[tuple[int, Cost]], place: int) -> Cost:
    """Return the cost at a place on the line through the smallest and largest measured one."""
    (left, low), (right, high) = points[0], points[-1]
    if left == right:
        return low
    share = (place - left) / (right - left)
    return low.scaled(1 - share, high, share)


def available_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many cores this process may use: affinity, and the container's quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = cgroup.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)
