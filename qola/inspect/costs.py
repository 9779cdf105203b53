"""Measured costs of compiles, as bench/measure_costs.py writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qola.errors import Finding, PlanError
from qola.json_types import json_fields

SCHEMA = 1
DEFAULT_COSTS = Path(__file__).with_name("costs.json")
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
        source: processor, compiler, arch and program of the measurement.
        cpu: the processor.
        triton: function to (HDIM, cost), ascending; empty if none was measured.
    """

    kernels: Mapping[tuple[str, str], Sequence[tuple[int, Cost]]]
    dispatches: Mapping[str, Sequence[tuple[int, Cost]]]
    source: str
    cpu: str
    triton: Mapping[str, Sequence[tuple[int, Cost]]] = field(default_factory=dict)


def load_costs(path: Path = DEFAULT_COSTS) -> Costs:
    """Read a file that bench/measure_costs.py wrote.

    Raises:
        PlanError: it cannot be read, or is not such a file.
    """
    try:
        data = json.loads(path.read_bytes())
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, not {SCHEMA}")
        triton = data.get("triton_kernels", ())
        return Costs(
            _grouped(data["kernels"], lambda e: ((e["direction"], e["role"]), e["hdim"])),
            _grouped(data["sources"], lambda e: (e["direction"], e["kernels"])),
            f"{data['cpu']}, {data['compiler']}, {data['arch']}; {data['command']}"
            + (f"; {data['triton']}" if triton else ""),
            str(data["cpu"]),
            _grouped(triton, lambda e: (e["kernel"], e["hdim"])) if triton else {},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise PlanError(
            Finding(
                path.as_posix(),
                f"cannot be used: {reason}",
                "costs as bench/measure_costs.py writes them",
                f"measure again: python3 bench/measure_costs.py --aiter TREE --output {path}",
            ),
            "the build cannot be estimated",
        ) from None


def _grouped(
    entries: Iterable[Mapping[str, Any]], key: Callable[[Mapping[str, Any]], tuple[Any, int]]
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
    if not groups:
        raise ValueError("no measurement")
    return {group: sorted(costs, key=lambda pair: pair[0]) for group, costs in groups.items()}
