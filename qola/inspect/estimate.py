"""Estimates what a plan costs to build, in time and size.

bench/measure_costs.py measured the costs of single compiles.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

from qola.json_types import JsonObject, json_fields
from qola.layout import TRITON
from qola.plan.model import GeneratedSource, KernelInstance, Plan, TorchModule, TritonKernel

#: Entry points and C functions of a library, in //:ci_libmha_fwd; host code that launches
#: assembly kernels, and the compressed share of their code objects, in //:quickstart_libmha_fwd.
ENTRY_BYTES, _ASSEMBLY_BYTES, _ASSEMBLY_SHARE = 55_000, 90_000, 0.22
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
        fixed_bytes: size of each library without the sources of `rows`.
    """

    rows: tuple[Row, ...]
    cores: int
    longest_seconds: float
    source: str
    cpu: str
    fixed_bytes: Mapping[str, float]

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
        sizes = dict(self.fixed_bytes)
        for row in self.rows:
            sizes[row.module] = sizes.get(row.module, 0.0) + row.linked_bytes
        return sizes

    def to_dict(self) -> JsonObject:
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
        for key, batches in groups.items():
            measured = key in costs.kernels
            points = costs.kernels[key if measured else _borrowed_role(costs, key[0])]
            for name, batch in batches.items():
                cost = _together(points, batch)
                found.append(Compile(name, module.name, len(batch), *key, cost, measured))
        called = Counter(kernel.direction for kernel in plan.kernels_of(module))
        for source in module.sources:
            if source.archs in ((), plan.archs):
                name, cost = f"{module.name}:{source.name}", _source_cost(costs, source, called)
                # Sources with PyTorch's headers were not measured.
                measured = not isinstance(module, TorchModule)
                found.append(Compile(name, module.name, 0, ALL, SOURCES, cost, measured))
    for in_triton in plan.triton:
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
        cost = _at(points, place)
        yield Compile(instance.name, TRITON, 1, kernel.name, kernel.function, cost, measured)


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
    fixed = {
        module.name: ENTRY_BYTES
        + (_ASSEMBLY_BYTES if module.code_objects else 0)
        + _ASSEMBLY_SHARE * sum(one.size for one in module.code_objects)
        for module in plan.modules
    }
    return Estimate(rows, cores, longest, costs.source, costs.cpu, fixed)


def _source_cost(costs: Costs, source: GeneratedSource, called: Mapping[str, int]) -> Cost:
    """Return the cost of a source by the number of kernel instances that it calls."""
    points = costs.dispatches.get(source.direction) or next(iter(costs.dispatches.values()))
    number = called.get(source.direction, 0) if source.role == "dispatch" else 0
    return _on_line(points, number)


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
    else:  # macOS
        cores = os.cpu_count() or 1
    try:
        quota, period = cgroup.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)


_COSTS = Path(__file__).with_name("costs.json")
#: Direction of sources that serve all directions of a library.
ALL = "all"


@dataclass(frozen=True)
class Cost:
    """The cost of compiling one source.

    Attributes:
        host_cpu_seconds: the part that does not depend on the number of archs.
        linked_bytes: the part of the object that is linked into a library.
        device_bytes: the part of `linked_bytes` that depends on the number of archs.
        further_...: of a further kernel instance in a batch.
    """

    cpu_seconds: float
    host_cpu_seconds: float
    further_cpu_seconds: float
    object_bytes: float
    linked_bytes: float
    device_bytes: float
    further_linked_bytes: float
    further_device_bytes: float

    def scaled(self, factor: float, other: Cost, other_factor: float) -> Cost:
        """Return the weighted sum of two costs, with negative parts as zero."""
        pairs = zip(json_fields(self).values(), json_fields(other).values(), strict=True)
        return Cost(*(max(0.0, mine * factor + others * other_factor) for mine, others in pairs))

    def for_archs(self, archs: int) -> Cost:
        """Return the cost of one source compiled for several archs at once."""
        device = self.cpu_seconds - self.host_cpu_seconds
        more = archs - 1
        return Cost(
            self.host_cpu_seconds + archs * device,
            self.host_cpu_seconds,
            archs * self.further_cpu_seconds,
            self.object_bytes + more * self.device_bytes,
            self.linked_bytes + more * self.device_bytes,
            archs * self.device_bytes,
            self.further_linked_bytes + more * self.further_device_bytes,
            archs * self.further_device_bytes,
        )


@dataclass(frozen=True)
class Costs:
    """Measured costs.

    Attributes:
        kernels: (direction, role) to (head dimension, cost), ascending.
        dispatches: direction to (number of kernels it calls, cost), ascending.
        triton: function to (HDIM, cost), ascending.
        source: processor, compiler, arch and program of the measurement.
    """

    kernels: Mapping[tuple[str, str], Sequence[tuple[int, Cost]]]
    dispatches: Mapping[str, Sequence[tuple[int, Cost]]]
    triton: Mapping[str, Sequence[tuple[int, Cost]]]
    source: str
    cpu: str


class _MeasuredCost(TypedDict, total=False):
    """An entry of costs.json: `hdim` or `kernels` is the size that its costs depend on."""

    direction: str
    role: str
    kernel: str
    hdim: int
    kernels: int
    cpu_seconds: float
    host_cpu_seconds: float
    further_cpu_seconds: float
    object_bytes: float
    linked_bytes: float
    further_linked_bytes: float
    device_bytes: float
    further_device_bytes: float


def load_costs(path: Path = _COSTS) -> Costs:
    """Read the file that bench/measure_costs.py writes."""
    data = json.loads(path.read_bytes())
    return Costs(
        _grouped(data["kernels"], lambda e: ((e["direction"], e["role"]), e["hdim"])),
        _grouped(data["sources"], lambda e: (e["direction"], e["kernels"])),
        _grouped(data["triton_kernels"], lambda e: (e["kernel"], e["hdim"])),
        f"{data['cpu']}, {data['compiler']}, {data['arch']}; {data['command']}; {data['triton']}",
        data["cpu"],
    )


def _grouped(
    entries: Iterable[_MeasuredCost], key: Callable[[_MeasuredCost], tuple[Any, int]]
) -> dict[Any, list[tuple[int, Cost]]]:
    groups: dict[Any, list[tuple[int, Cost]]] = {}
    for entry in entries:
        group, place = key(entry)
        cost = Cost(
            float(entry["cpu_seconds"]),
            float(entry.get("host_cpu_seconds", 0.0)),
            float(entry.get("further_cpu_seconds", entry["cpu_seconds"])),
            float(entry["object_bytes"]),
            float(entry["linked_bytes"]),
            float(entry.get("device_bytes", 0.0)),
            float(entry.get("further_linked_bytes", entry["linked_bytes"])),
            float(entry.get("further_device_bytes", entry.get("device_bytes", 0.0))),
        )
        groups.setdefault(group, []).append((int(place), cost))
    return {group: sorted(costs, key=lambda pair: pair[0]) for group, costs in groups.items()}
