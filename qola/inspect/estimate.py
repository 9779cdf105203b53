"""Estimates what a plan costs to build, in time and size, from measured costs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from qola.inspect.costs import ALL, Cost, Costs
from qola.json_types import json_fields
from qola.layout import TRITON
from qola.plan.model import GeneratedSource, KernelInstance, Plan, TorchModule, TritonKernel

#: Role of the sources of a library that are not kernel instances.
SOURCES = "dispatch, entry"


@dataclass(frozen=True)
class Compile:
    """One source to compile: a batch of kernel instances, one of them, or a source of a library.

    Attributes:
        name: label of its target without the repository.
        kernels: number of its kernel instances.
        direction: of a kernel instance; `ALL` for a source of the library; for Triton the name of
            the kernel.
        measured: the costs of its role were measured, not borrowed from another role.
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
        longest_seconds: duration of the longest compile, a lower bound for any number of cores.
        source: how the costs were measured.
        cpu: the processor of the measurement.
    """

    rows: tuple[Row, ...]
    cores: int
    longest_seconds: float
    source: str
    cpu: str

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all compiles in seconds."""
        return sum(row.cpu_seconds for row in self.rows)

    @property
    def wall_seconds(self) -> float:
        """Wall time of all compiles in seconds, with all cores busy."""
        return max(self.cpu_seconds / self.cores, self.longest_seconds)

    @property
    def object_bytes(self) -> float:
        """Size of all object files in bytes, as a cache stores them."""
        return sum(row.object_bytes for row in self.rows)

    def library_bytes(self) -> dict[str, float]:
        """Return the size of each module's library."""
        sizes: dict[str, float] = {}
        for row in self.rows:
            sizes[row.module] = sizes.get(row.module, 0.0) + row.linked_bytes
        return sizes

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with seconds and bytes rounded to integers."""
        return {
            "cores": self.cores,
            "cpu_seconds": round(self.cpu_seconds),
            "wall_seconds": round(self.wall_seconds),
            "longest_seconds": round(self.longest_seconds),
            "object_bytes": round(self.object_bytes),
            "library_bytes": {name: round(n) for name, n in self.library_bytes().items()},
            "measured": self.source,
            "rows": [
                {k: round(v) if isinstance(v, float) else v for k, v in json_fields(row).items()}
                for row in self.rows
            ],
        }


def compiles(plan: Plan, costs: Costs) -> tuple[Compile, ...]:
    """Return the compiles of a build with an empty cache, in the plan's order, with their costs."""
    found: list[Compile] = []
    for module in plan.with_kernels:
        groups: dict[tuple[str, str], dict[str, list[KernelInstance]]] = {}
        for name, kernel in zip(plan.compiled_as(module), plan.kernels_of(module), strict=True):
            group = groups.setdefault((kernel.direction, kernel.role), {})
            group.setdefault(f"{kernel.package}:{name}", []).append(kernel)
        for (direction, role), batches in groups.items():
            measured = (direction, role) in costs.kernels
            points = costs.kernels[
                (direction, role) if measured else _borrowed_role(costs, direction)
            ]
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
                # Sources with PyTorch's headers were not measured.
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
    """Yield the compiles of a kernel in Triton, one for each instance.

    A user's kernel is estimated by qola's most expensive one.
    """
    costliest = max(costs, key=lambda name: (costs[name][-1][1].cpu_seconds, name))
    measured = kernel.own and kernel.function in costs
    points = costs[kernel.function if measured else costliest]
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
    """Estimate the cost of building a plan on `cores` cores with an empty cache.

    Linking takes seconds and is not included.
    """
    groups: dict[tuple[str, str, str], list[Compile]] = {}
    for compile_ in compiles(plan, costs):
        key = (compile_.module, compile_.direction, compile_.role)
        groups.setdefault(key, []).append(compile_)
    longest = max((c.cost.cpu_seconds for group in groups.values() for c in group), default=0.0)
    rows = tuple(_row(group) for group in groups.values())
    return Estimate(rows, cores, longest, costs.source, costs.cpu)


def _source_cost(
    costs: Costs,
    source: GeneratedSource,
    groups: Mapping[tuple[str, str], Mapping[str, Sequence[KernelInstance]]],
) -> Cost:
    """Return the cost of a source by the number of kernel instances that it calls."""
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
    """Return the cost of a batch, whose further kernel instances cost less than the first."""
    first, *others = (_at(points, _hdim(kernel)).for_archs(len(kernel.archs)) for kernel in batch)
    for cost in others:
        beyond_code = cost.object_bytes - cost.linked_bytes
        further = replace(
            cost,
            cpu_seconds=cost.further_cpu_seconds,
            host_cpu_seconds=0.0,
            object_bytes=cost.further_linked_bytes + beyond_code,
            linked_bytes=cost.further_linked_bytes,
            device_bytes=cost.further_device_bytes,
        )
        first = first.scaled(1, further, 1)
    return first


def _hdim(kernel: KernelInstance) -> int:
    fields = kernel.fields.items()
    return max((v for k, v in fields if k.startswith("hdim_") and isinstance(v, int)), default=0)


def _borrowed_role(costs: Costs, direction: str) -> tuple[str, str]:
    """Return the most expensive measured role of a direction, else of all directions."""
    own = [key for key in costs.kernels if key[0] == direction] or list(costs.kernels)
    return max(own, key=lambda key: (costs.kernels[key][-1][1].cpu_seconds, key))


def _at(points: Sequence[tuple[int, Cost]], place: int) -> Cost:
    """Return the cost at a head dimension by linear interpolation."""
    for low, high in pairwise(points):
        if low[0] <= place <= high[0]:
            return _on_line((low, high), place)
    return points[0][1] if place < points[0][0] else points[-1][1]


def _on_line(points: Sequence[tuple[int, Cost]], place: int) -> Cost:
    """Return the cost on the line through the first and the last measured point."""
    (left, low), (right, high) = points[0], points[-1]
    if left == right:
        return low
    share = (place - left) / (right - left)
    return low.scaled(1 - share, high, share)


def available_cores(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores for this process, by affinity and the container's quota."""
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
