"""Estimates what a plan costs to build, in time and size.

bench/measure_costs.py measured the seconds of single compiles and of the rest of a build, and the
bytes of built objects.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from qola.common.layout import TRITON
from qola.plan.model import (
    GeneratedSource,
    KernelInstance,
    Plan,
    PlannedModule,
    TorchModule,
    TritonKernel,
)
from qola_base.json_types import JsonObject, json_fields

#: A library without kernel instances: entry points and C functions, tables of the linker.
ENTRY_BYTES = 59_000
#: Functions of the C++ library and of Composable Kernel in each object with kernel instances, of
#: which a library has one copy.
SHARED_BYTES = 4_600
#: Unwind index, relocations and name of a kernel instance, which the linker adds to its object.
TABLE_BYTES = 500
#: Part of a kernel instance's host code that its counterparts for other archs share.
_SHARED_HOST = 0.75
#: Compressed share of the code objects of assembly kernels.
_ASSEMBLY_SHARE = 0.22
#: Properties of kernel instances that change their size: name to field and value.
_FEATURES = {"dropout": ("dropout", True), "qr": ("pipeline", "qr")}
#: Source for the assembly kernels that a plan leaves out: small, unlike others of its role.
UNPLANNED = "asm_unplanned"
#: Role of the source with the entry points that a library exports, which call AITER's.
EXPORTED = "exported"
#: Role of the sources of a library that are not kernel instances, with its link.
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
        start_seconds: wall time before the first compile: the compiler and AITER are unpacked, the
            manifest is planned, Bazel starts. Downloads are not included.
        source: how the costs were measured.
        cpu: the processor of the measurement.
        fixed_bytes: what each library has in addition to the sources of `rows`; less than 0 if
            kernel instances for several archs share more.
        not_estimated: number of sources without an estimate, by module.
    """

    rows: tuple[Row, ...]
    cores: int
    longest_seconds: float
    start_seconds: float
    source: str
    cpu: str
    fixed_bytes: Mapping[str, float]
    not_estimated: Mapping[str, int]

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all compiles in seconds."""
        return sum(row.cpu_seconds for row in self.rows)

    @property
    def wall_seconds(self) -> float:
        """Wall time of the build in seconds, with all cores busy while it compiles."""
        return self.start_seconds + max(self.cpu_seconds / self.cores, self.longest_seconds)

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
            "start_seconds": round(self.start_seconds),
            "object_bytes": round(self.object_bytes),
            "library_bytes": {name: round(n) for name, n in self.library_bytes().items()},
            "measured": self.source,
            "not_estimated": dict(self.not_estimated),
            "rows": [
                {k: round(v) if isinstance(v, float) else v for k, v in json_fields(row).items()}
                for row in self.rows
            ],
        }


def compiles(plan: Plan, costs: Costs) -> tuple[Compile, ...]:
    """Return the compiles of a build with an empty cache, in the plan's order, with their costs.

    Sources of `unmeasured_sources` are left out.
    """
    found: list[Compile] = []
    for module in plan.with_kernels:
        groups: dict[tuple[str, str], dict[str, list[KernelInstance]]] = {}
        units = plan.unit_by_kernel(module)
        for index, name in zip(module.kernels, plan.compiled_as(module), strict=True):
            kernel, unit = plan.kernels[index], units[index]
            group = groups.setdefault((kernel.direction, kernel.role), {})
            group.setdefault(f"{unit.kernel_group}:{name}", []).append(kernel)
        for key, batches in groups.items():
            measured = key in costs.kernels
            points = costs.kernels[key if measured else _borrowed_role(costs, *key)]
            sizes = _sizes_of(costs.kernel_sizes, *key)
            for name, batch in batches.items():
                cost = _batch_cost(points, sizes, batch)
                found.append(Compile(name, module.name, len(batch), *key, cost, measured))
        called = called_kernels(plan.kernels_of(module))
        for source in module.sources:
            if source.archs in ((), plan.archs) and _is_measured(module, source):
                cost = _source_cost(costs, source, called, len(plan.archs))
                name = f"{module.name}:{source.name}"
                found.append(Compile(name, module.name, 0, ALL, SOURCES, cost, measured=True))
        if isinstance(module, PlannedModule):
            directions = [source.direction for source in module.sources if source.role == "entry"]
            exported = _entry_seconds(costs, directions, EXPORTED)
            for part, seconds in ((EXPORTED, exported.cpu), ("link", costs.link_seconds)):
                name, cost = f"{module.name}:{part}", Cost(seconds, 0, 0)
                found.append(Compile(name, module.name, 0, ALL, SOURCES, cost, measured=True))
    for in_triton in plan.triton:
        found += _triton(in_triton, costs.triton)
    return tuple(found)


def _is_measured(module: PlannedModule | TorchModule, source: GeneratedSource) -> bool:
    """Return whether sources such as one of a module were measured.

    Of torch modules these are Composable Kernel's dispatches. Other sources take from seconds to
    minutes, by their content.
    """
    return isinstance(module, PlannedModule) or source.role == "dispatch"


def unmeasured_sources(plan: Plan) -> dict[str, int]:
    """Return the number of sources whose costs are unknown, by module, without zeros."""
    found = {
        module.name: sum(
            (module.per_arch or source.archs in ((), plan.archs))
            and not _is_measured(module, source)
            for source in module.sources
        )
        for module in plan.torch_modules
    }
    found |= {module.name: len(module.sources) for module in plan.python_modules}
    return {name: number for name, number in found.items() if number}


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
    """Estimate the cost of building a plan on `cores` cores with an empty cache."""
    groups: dict[tuple[str, str, str], list[Compile]] = {}
    for compile_ in compiles(plan, costs):
        key = (compile_.module, compile_.direction, compile_.role)
        groups.setdefault(key, []).append(compile_)
    longest = max((c.cost.cpu_seconds for group in groups.values() for c in group), default=0.0)
    rows = tuple(_row(group) for group in groups.values())
    fixed = {
        module.name: ENTRY_BYTES
        + SHARED_BYTES
        + TABLE_BYTES * len(module.kernels)
        - _SHARED_HOST * _counterpart_bytes(plan.kernels_of(module), costs)
        + _ASSEMBLY_SHARE * sum(one.size for one in module.code_objects)
        for module in plan.modules
    }
    unmeasured = unmeasured_sources(plan)
    start = costs.start_seconds if rows else 0.0
    return Estimate(rows, cores, longest, start, costs.source, costs.cpu, fixed, unmeasured)


def called_kernels(kernels: Iterable[KernelInstance]) -> Counter[str]:
    """Return the number of kernel instances that the dispatch of each direction calls."""
    # Code for assembly kernels calls their helpers.
    return Counter(kernel.direction for kernel in kernels if not kernel.role.startswith("asm_"))


def source_key(source: GeneratedSource) -> tuple[str, str]:
    """Return the direction of a source and its role, by which its bytes are measured."""
    # The assembly kernels that a plan leaves out have one small source.
    return source.direction, source.name if source.name == UNPLANNED else source.role


def _counterpart_bytes(kernels: Sequence[KernelInstance], costs: Costs) -> float:
    """Return the bytes of host code of kernel instances that differ from another in arch only."""
    first: dict[str, tuple[str, ...]] = {}
    total = 0.0
    for kernel in kernels:
        name = str((kernel.role, sorted((k, v) for k, v in kernel.fields.items() if k != "arch")))
        if first.setdefault(name, kernel.archs) != kernel.archs:
            sizes = _sizes_of(costs.kernel_sizes, kernel.direction, kernel.role)
            total += _weighted(sizes, kernel_weights([kernel])).host
    return total


def _source_cost(
    costs: Costs, source: GeneratedSource, called: Mapping[str, int], archs: int
) -> Cost:
    """Return the cost of a source by the number of kernel instances that it calls."""
    points = costs.dispatches.get(source.direction) or next(iter(costs.dispatches.values()))
    number = called.get(source.direction, 0) if source.role == "dispatch" else 0
    direction, role = source_key(source)
    own_role = {key: size for key, size in costs.source_sizes.items() if key[1] == role}
    sizes = _sizes_of(own_role or costs.source_sizes, direction, role)
    size = _weighted(sizes, {OBJECT: 1, KERNEL: number})
    # The line through measured sources can fall below zero for few kernel instances.
    linked, symbols = max(0.0, size.host), max(0.0, size.symbols)
    if role == "entry":
        entry = _entry_seconds(costs, [direction], role)
        seconds = entry.host + archs * (entry.cpu - entry.host)
    else:
        # Dispatches, and AITER's code for assembly kernels, have host code only.
        seconds = _on_line(points, number).cpu
    return Cost(seconds, linked + symbols, linked)


def _entry_seconds(costs: Costs, directions: Sequence[str], role: str) -> Seconds:
    """Return the seconds of a role's source, of another direction if its own is not measured."""
    measured = [(direction, role) for direction in directions if (direction, role) in costs.entries]
    others = [key for key in costs.entries if key[1] == role]
    return costs.entries[(measured or others)[0]]


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


def _batch_cost(
    points: Sequence[tuple[int, Seconds]],
    sizes: Mapping[str, Bytes],
    batch: Sequence[KernelInstance],
) -> Cost:
    """Return the cost of a batch: further kernel instances take less time than the first."""
    archs = len(batch[0].archs)
    first, *others = (_at(points, _hdim(kernel)) for kernel in batch)
    device = first.cpu - first.host + sum(other.further for other in others)
    size = _weighted(sizes, kernel_weights(batch))
    linked = size.host + archs * size.device
    return Cost(first.host + archs * device, SHARED_BYTES + linked + size.symbols, linked)


def kernel_weights(kernels: Sequence[KernelInstance]) -> dict[str, int]:
    """Return the number of kernel instances, and of those with each property of `_FEATURES`."""
    found = {
        name: sum(kernel.fields.get(field) == value for kernel in kernels)
        for name, (field, value) in _FEATURES.items()
    }
    return {KERNEL: len(kernels)} | found


def _weighted(sizes: Mapping[str, Bytes], weights: Mapping[str, int]) -> Bytes:
    """Return the sum of sizes by their weights."""
    rows = [[weights[name] * n for n in astuple(size)] for name, size in sizes.items()]
    return Bytes(*map(sum, zip(*rows, strict=True)))


def _sizes_of(
    sizes: Mapping[tuple[str, str], Mapping[str, Bytes]], direction: str, role: str
) -> Mapping[str, Bytes]:
    """Return the sizes of a role, else the largest ones of its direction, else of all."""
    if (direction, role) in sizes:
        return sizes[direction, role]
    own = [key for key in sizes if key[0] == direction] or list(sizes)
    return sizes[max(own, key=lambda key: (sum(astuple(next(iter(sizes[key].values())))), key))]


def _hdim(kernel: KernelInstance) -> int:
    fields = kernel.fields.items()
    return max((v for k, v in fields if k.startswith("hdim_") and isinstance(v, int)), default=0)


def _borrowed_role(costs: Costs, direction: str, role: str) -> tuple[str, str]:
    """Return the measured role whose costs stand for those of another.

    Helpers of assembly kernels cost as much as those of Composable Kernel's. Other roles cost as
    much as the most expensive one of their direction, else of all directions.
    """
    helper = direction, role.removeprefix("asm_")
    if helper in costs.kernels:
        return helper
    own = [key for key in costs.kernels if key[0] == direction] or list(costs.kernels)
    return max(own, key=lambda key: (costs.kernels[key][-1][1].cpu, key))


def _at(points: Sequence[tuple[int, _T]], place: int) -> _T:
    """Return the cost at a head dimension by linear interpolation."""
    for low, high in pairwise(points):
        if low[0] <= place <= high[0]:
            return _on_line((low, high), place)
    return points[0][1] if place < points[0][0] else points[-1][1]


def _on_line(points: Sequence[tuple[int, _T]], place: int) -> _T:
    """Return the cost on the line through the first and the last measured point."""
    (left, low), (right, high) = points[0], points[-1]
    if left == right:
        return low
    share = (place - left) / (right - left)
    pairs = zip(astuple(low), astuple(high), strict=True)
    return type(low)(*(max(0.0, one * (1 - share) + other * share) for one, other in pairs))


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


#: What `Bytes` are measured for.
OBJECT, KERNEL = "object", "kernel"


@dataclass(frozen=True)
class Seconds:
    """CPU seconds of compiles.

    Attributes:
        cpu: of one kernel instance, or of a source.
        host: the part of `cpu` that does not depend on the number of archs.
        further: of a further kernel instance in a batch.
    """

    cpu: float
    host: float = 0.0
    further: float = 0.0


@dataclass(frozen=True)
class Bytes:
    """Bytes of objects.

    Attributes:
        host: linked into a library.
        device: compressed device code for one arch, linked into a library.
        symbols: symbols, their names and relocations, not linked.
    """

    host: float
    device: float
    symbols: float


@dataclass(frozen=True)
class Cost:
    """The cost of compiling one source.

    Attributes:
        linked_bytes: the part of the object that is linked into a library.
    """

    cpu_seconds: float
    object_bytes: float
    linked_bytes: float


_T = TypeVar("_T", Seconds, Cost)


@dataclass(frozen=True)
class Costs:
    """Measured costs.

    Attributes:
        kernels: (direction, role) to (head dimension, seconds), ascending.
        dispatches: direction to (number of kernels it calls, seconds), ascending.
        entries: (direction, role) to the seconds of AITER's entry points, and of the exported ones.
        link_seconds: CPU seconds of a library's small sources and its link.
        start_seconds: wall seconds of a build before its first compile.
        triton: function to (HDIM, cost), ascending.
        kernel_sizes: (direction, role) to the bytes of a kernel instance, and the bytes that each
            property in `kernel_weights` adds.
        source_sizes: (direction, role) to the bytes of a source, and those per kernel instance that
            it calls.
        source: processor, compiler, arch and program of the measurement.
    """

    kernels: Mapping[tuple[str, str], Sequence[tuple[int, Seconds]]]
    dispatches: Mapping[str, Sequence[tuple[int, Seconds]]]
    entries: Mapping[tuple[str, str], Seconds]
    link_seconds: float
    start_seconds: float
    triton: Mapping[str, Sequence[tuple[int, Cost]]]
    kernel_sizes: Mapping[tuple[str, str], Mapping[str, Bytes]]
    source_sizes: Mapping[tuple[str, str], Mapping[str, Bytes]]
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


class _MeasuredSize(TypedDict):
    """An entry of costs.json: bytes of a kernel instance or a source, or of one of its weights."""

    direction: str
    role: str
    per: str
    host_bytes: float
    device_bytes: float
    symbols_bytes: float


def load_costs(path: Path = _COSTS) -> Costs:
    """Read the file that bench/measure_costs.py writes."""
    data = json.loads(path.read_bytes())
    dispatches = [entry for entry in data["sources"] if entry["role"] == "dispatch"]
    entries = [entry for entry in data["sources"] if entry["role"] != "dispatch"]
    return Costs(
        _grouped(data["kernels"], lambda e: ((e["direction"], e["role"]), e["hdim"]), _seconds),
        _grouped(dispatches, lambda e: (e["direction"], e["kernels"]), _seconds),
        {(entry["direction"], entry["role"]): _seconds(entry) for entry in entries},
        data["build"]["link_cpu_seconds"],
        data["build"]["start_seconds"],
        _grouped(data["triton_kernels"], lambda e: (e["kernel"], e["hdim"]), _cost),
        _sizes(data["kernel_sizes"]),
        _sizes(data["source_sizes"]),
        f"{data['cpu']}, {data['compiler']}, {data['arch']}; {data['command']}; {data['triton']}",
        data["cpu"],
    )


def _seconds(entry: _MeasuredCost) -> Seconds:
    cpu = float(entry["cpu_seconds"])
    further = float(entry.get("further_cpu_seconds", cpu))
    return Seconds(cpu, float(entry.get("host_cpu_seconds", 0.0)), further)


def _cost(entry: _MeasuredCost) -> Cost:
    seconds, linked = float(entry["cpu_seconds"]), float(entry["linked_bytes"])
    return Cost(seconds, float(entry["object_bytes"]), linked)


def _grouped(
    entries: Iterable[_MeasuredCost],
    key: Callable[[_MeasuredCost], tuple[Any, int]],
    parse: Callable[[_MeasuredCost], _T],
) -> dict[Any, list[tuple[int, _T]]]:
    groups: dict[Any, list[tuple[int, _T]]] = {}
    for entry in entries:
        group, place = key(entry)
        groups.setdefault(group, []).append((int(place), parse(entry)))
    return {group: sorted(costs, key=lambda pair: pair[0]) for group, costs in groups.items()}


def _sizes(entries: Iterable[_MeasuredSize]) -> dict[tuple[str, str], dict[str, Bytes]]:
    found: dict[tuple[str, str], dict[str, Bytes]] = {}
    for entry in entries:
        key = entry["direction"], entry["role"]
        size = Bytes(entry["host_bytes"], entry["device_bytes"], entry["symbols_bytes"])
        found.setdefault(key, {})[entry["per"]] = size
    return found
