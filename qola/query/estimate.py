"""Estimates the time to build a plan and the size of its libraries, from measured costs.

costs.json has a line for each role of a compile. bench/measure_costs.py fits them to a build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from qola.common.layout import TRITON
from qola.plan.model import GeneratedSource, KernelInstance, Plan, PlannedModule, TorchModule
from qola_base.json_types import JsonObject, json_fields, parse_json, reader

#: Compressed share of the code objects of assembly kernels.
_ASSEMBLY_SHARE = 0.22
#: Properties of kernel instances that add to the bytes of their role: name to field and value. The
#: costs of a property have its name as role.
FEATURES = {"dropout": ("dropout", True), "qr": ("pipeline", "qr")}
#: Part of a kernel instance's host code that its counterparts for other archs share.
_SHARED_HOST = 0.75
#: Source for the assembly kernels that a plan leaves out: small, unlike others of its role.
UNPLANNED = "asm_unplanned"
#: Role of the source with the entry points that a library exports, which call AITER's.
EXPORTED = "exported"
#: Role of a library's link, and of the C functions and tables that each library has.
LIBRARY = "library"
#: Role of the sources of a library that are not kernel instances, with its link, in `Row`.
SOURCES = "dispatch, entry"
#: Direction of sources that serve all directions of a library.
ALL = "all"
_COSTS = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Cost:
    """What a compile takes.

    Attributes:
        linked_bytes: the part of the object that is linked into a library.
    """

    cpu_seconds: float
    object_bytes: float
    linked_bytes: float

    def __add__(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


Coefficients = tuple[float, float, float, float]


def counts(archs: int, kernels: int) -> tuple[int, int, int, int]:
    """Return the numbers of a compile that its cost depends on, in the order of `Coefficients`.

    Args:
        archs: number of archs that the source is compiled for.
        kernels: number of kernel instances in a batch, or that a dispatch calls.
    """
    return 1, archs, kernels, kernels * archs


@dataclass(frozen=True)
class RoleCost:
    """The costs of a role: coefficients of a compile, its archs, its kernel instances, both.

    Attributes:
        direction: for kernels in Triton `TRITON`, with the function as role.
        hdim: head dimension of the measured kernel instances; 0 for all.
    """

    direction: str
    role: str
    hdim: int
    cpu_seconds: Coefficients
    object_bytes: Coefficients
    linked_bytes: Coefficients

    def at(self, archs: int, kernels: int) -> Cost:
        """Return the cost of a compile."""
        numbers = counts(archs, kernels)
        measured = (self.cpu_seconds, self.object_bytes, self.linked_bytes)
        sums = (sum(n * x for n, x in zip(numbers, values, strict=True)) for values in measured)
        return Cost(*sums)


@dataclass(frozen=True)
class Costs:
    """Measured costs.

    Attributes:
        cpu: processor of the measurement.
        compiler: compiler and arch of the measurement.
        measured_triton: version of Triton, and the processor that compiled with it.
        start_seconds: wall seconds of a build before its first compile.
        kernels: roles of kernel instances, whose compiles are batches.
        features: bytes that properties of kernel instances add, see `FEATURES`.
        sources: roles of the other sources of libraries.
        triton: kernels in Triton.
    """

    cpu: str
    compiler: str
    measured_triton: str
    start_seconds: float
    kernels: tuple[RoleCost, ...]
    features: tuple[RoleCost, ...]
    sources: tuple[RoleCost, ...]
    triton: tuple[RoleCost, ...]


def load_costs(path: Path = _COSTS) -> Costs:
    """Read the file that bench/measure_costs.py writes."""
    costs: Costs = reader(Costs)(parse_json(path.read_bytes()))
    return costs


@dataclass(frozen=True)
class Row:
    """The cost of a group of compiles: all kernel instances of a role, or a module's sources.

    Attributes:
        direction: of a kernel instance; `ALL` for a module's sources; for Triton the name of the
            kernel.
        measured: the costs of its role were measured, not borrowed from another role.
    """

    module: str
    direction: str
    role: str
    kernels: int
    compiles: int
    cost: Cost
    measured: bool = True


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
        not_estimated: number of sources without an estimate, by module.
    """

    rows: tuple[Row, ...]
    cores: int
    longest_seconds: float
    start_seconds: float
    source: str
    cpu: str
    not_estimated: Mapping[str, int]

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all compiles in seconds."""
        return sum(row.cost.cpu_seconds for row in self.rows)

    @property
    def wall_seconds(self) -> float:
        """Wall time of the build in seconds, with all cores busy while it compiles."""
        return self.start_seconds + max(self.cpu_seconds / self.cores, self.longest_seconds)

    @property
    def object_bytes(self) -> float:
        """Size of all object files in bytes, as a cache stores them."""
        return sum(row.cost.object_bytes for row in self.rows)

    def library_bytes(self) -> dict[str, float]:
        """Return the size of each module's library."""
        sizes: dict[str, float] = {}
        for row in self.rows:
            sizes[row.module] = sizes.get(row.module, 0.0) + row.cost.linked_bytes
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
            "rows": [_row_dict(row) for row in self.rows],
        }


def _row_dict(row: Row) -> JsonObject:
    numbers = {name: round(value) for name, value in json_fields(row.cost).items()}
    return {**{k: v for k, v in json_fields(row).items() if k != "cost"}, **numbers}


def estimate(plan: Plan, costs: Costs, cores: int) -> Estimate:
    """Estimate the cost of building a plan on `cores` cores with an empty cache."""
    rows: dict[tuple[str, str, str], Row] = {}
    longest = 0.0
    for one in _compiles(plan, costs):
        key = one.module, one.direction, one.role
        row = rows.get(key, replace(one, kernels=0, compiles=0, cost=Cost(0, 0, 0)))
        rows[key] = replace(
            row,
            kernels=row.kernels + one.kernels,
            compiles=row.compiles + one.compiles,
            cost=row.cost + one.cost,
        )
        longest = max(longest, one.cost.cpu_seconds)
    return Estimate(
        tuple(rows.values()),
        cores,
        longest,
        costs.start_seconds if rows else 0.0,
        "; ".join((costs.cpu, costs.compiler, costs.measured_triton)),
        costs.cpu,
        unmeasured_sources(plan),
    )


def _compiles(plan: Plan, costs: Costs) -> Iterator[Row]:
    """Yield a row for each compile of a build with an empty cache.

    Sources of `unmeasured_sources` are left out.
    """
    for module in plan.with_kernels:
        for batch in batches(plan, module).values():
            (direction, role), archs = (batch[0].direction, batch[0].role), len(batch[0].archs)
            own, measured = _find(costs.kernels, direction, role, hdim_of(batch))
            cost = own.at(archs, len(batch))
            for feature in costs.features:
                if feature.direction == direction:
                    cost += feature.at(archs, with_feature(batch, feature.role))
            yield Row(module.name, direction, role, len(batch), 1, cost, measured)
        sources = list(_source_costs(plan, module, costs))
        yield from (Row(module.name, ALL, SOURCES, 0, 1, cost) for cost in sources)
    for kernel in plan.triton:
        # A user's kernel costs as much as qola's most expensive one, whatever its name.
        function = kernel.function if kernel.own else f"{kernel.name} of the user"
        for instance in kernel.instances:
            hdim = instance.choices.get("HDIM", "")
            place = int(hdim) if hdim.isdecimal() else 0
            own, measured = _find(costs.triton, TRITON, function, place)
            yield Row(TRITON, kernel.name, kernel.function, 1, 1, own.at(1, 1), measured)


def _source_costs(plan: Plan, module: PlannedModule | TorchModule, costs: Costs) -> Iterator[Cost]:
    """Yield the costs of a module's compiles that have no kernel instances, and of its link."""
    archs = len(plan.archs)
    for source in module.sources:
        if source.archs in ((), plan.archs) and _is_measured(module, source):
            own, _ = _find(costs.sources, *source_key(source))
            yield own.at(archs, called_kernels(plan, module, source))
    if isinstance(module, PlannedModule):
        directions = [one.direction for one in module.sources if one.role == "entry"]
        yield _find(costs.sources, "".join(directions[:1]), EXPORTED)[0].at(archs, 0)
        linked = _ASSEMBLY_SHARE * sum(one.size for one in module.code_objects)
        for (direction, role), number in _counterparts(plan.kernels_of(module)).items():
            host = _find(costs.kernels, direction, role)[0].at(0, 1).linked_bytes
            linked -= _SHARED_HOST * host * number
        library, _ = _find(costs.sources, ALL, LIBRARY)
        yield library.at(archs, len(module.kernels)) + Cost(0, 0, linked)


def _counterparts(kernels: Sequence[KernelInstance]) -> Counter[tuple[str, str]]:
    """Return the number of kernel instances that differ from an earlier one in arch only."""
    first: dict[str, tuple[str, ...]] = {}
    found: Counter[tuple[str, str]] = Counter()
    for kernel in kernels:
        name = str((kernel.role, sorted((k, v) for k, v in kernel.fields.items() if k != "arch")))
        if first.setdefault(name, kernel.archs) != kernel.archs:
            found[kernel.direction, kernel.role] += 1
    return found


def _find(
    costs: Sequence[RoleCost], direction: str, role: str, hdim: int = 0
) -> tuple[RoleCost, bool]:
    """Return the costs of a role at the nearest head dimension, and whether they are its own.

    Helpers of assembly kernels cost as much as those of Composable Kernel's. Other roles cost as
    much as the most expensive one of this name, else of their direction, else of all.
    """
    own = [one for one in costs if (one.direction, one.role) == (direction, role)]
    helpers = [one for one in costs if (one.direction, f"asm_{one.role}") == (direction, role)]
    same_role = [one for one in costs if one.role == role]
    same_direction = [one for one in costs if one.direction == direction]
    found = own or helpers or same_role or same_direction or costs
    nearest = max(found, key=lambda one: (-abs(one.hdim - hdim), one.at(1, 1).cpu_seconds))
    return nearest, bool(own)


def batches(
    plan: Plan, module: PlannedModule | TorchModule
) -> dict[tuple[str, str], list[KernelInstance]]:
    """Return the kernel instances of each object of a module, by kernel group and target."""
    found: dict[tuple[str, str], list[KernelInstance]] = {}
    units = plan.unit_by_kernel(module)
    for index, name in zip(module.kernels, plan.compiled_as(module), strict=True):
        found.setdefault((units[index].kernel_group, name), []).append(plan.kernels[index])
    return found


def hdim_of(batch: Sequence[KernelInstance]) -> int:
    """Return the largest head dimension of kernel instances, 0 if they have none."""
    fields = [item for kernel in batch for item in kernel.fields.items()]
    return max((v for k, v in fields if k.startswith("hdim_") and isinstance(v, int)), default=0)


def with_feature(batch: Sequence[KernelInstance], feature: str) -> int:
    """Return the number of kernel instances with a property of `FEATURES`."""
    field, value = FEATURES[feature]
    return sum(kernel.fields.get(field) == value for kernel in batch)


def called_kernels(plan: Plan, module: PlannedModule | TorchModule, source: GeneratedSource) -> int:
    """Return the number of kernel instances that a source calls, 0 unless it is a dispatch."""
    # Code for assembly kernels calls their helpers.
    return sum(
        source.role == "dispatch"
        and kernel.direction == source.direction
        and not kernel.role.startswith("asm_")
        for kernel in plan.kernels_of(module)
    )


def source_key(source: GeneratedSource) -> tuple[str, str]:
    """Return the direction of a source and its role, by which its costs are measured."""
    # The assembly kernels that a plan leaves out have one small source.
    return source.direction, source.name if source.name == UNPLANNED else source.role


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
