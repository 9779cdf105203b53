"""The rows of bench/run: each compares a measurement of this project with one of a contender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from bench.processes import BenchError
from qola_base.errors import Finding

SCHEMA_VERSION = 2

Unit = Literal["s", "bytes"]

CONTENDERS = {"aiter": "AITER with ninja", "cmake": "CK with CMake"}
"""Name of each contender, by its key in measurements."""

_SAME = 0.03


@dataclass(frozen=True)
class Kind:
    """A comparison, made with each contender.

    Attributes:
        name: the row's name, without the contender.
        ours: name of our measurement; it ends with the unit.
        theirs: name of the contender's measurement.
        step: the step that measures it; a contender without such a step repeats its cold build.
        part: the module or direction, "" for all of them together.
    """

    name: str
    ours: str
    theirs: str
    step: str = "cold"
    part: str = ""

    @property
    def unit(self) -> Unit:
        """The unit of both measurements."""
        return unit_of(self.ours)


def unit_of(name: str) -> Unit:
    """Return the unit of a measurement, by its name."""
    return "s" if name.endswith("seconds") else "bytes"


def kinds(parts: Mapping[str, str]) -> tuple[Kind, ...]:
    """Return the comparisons of a workload.

    Args:
        parts: name of each part in rows, by its name in measurements.
    """

    def each(step: str, row: str, measured: str) -> Iterable[Kind]:
        for part, name in parts.items():
            found = measured.format(part)
            yield Kind(row.format(name), found, found, step, part)

    kernels = zip(
        each("kernel", "kernel {}", "kernel_{}_cpu_seconds"),
        each("kernel", "kernel {}, wall time", "kernel_{}_seconds"),
        strict=True,
    )
    return (
        *(kind for pair in kernels for kind in pair),
        *each("host", "host pass {}", "host_{}_cpu_seconds"),
        Kind("cold build", "cold_seconds", "cold_seconds"),
        Kind("cold build, CPU time", "cold_cpu_seconds", "cold_cpu_seconds"),
        Kind("cold build, fetched", "build_seconds", "cold_seconds"),
        Kind("warm rebuild elsewhere, disk cache", "disk_seconds", "cold_seconds", "disk"),
        Kind("warm rebuild elsewhere, remote cache", "remote_seconds", "cold_seconds", "remote"),
        Kind("no-op", "noop_seconds", "noop_seconds", "noop"),
        Kind("one-variant change", "change_seconds", "change_seconds", "change"),
        *each("cold", "shipped bytes {}", "library_{}_bytes_per_kernel"),
        *each("load", "first load {}", "load_{}_seconds"),
        Kind("peak memory, compiler", "compiler_peak_bytes", "compiler_peak_bytes"),
        Kind("peak memory, build", "build_peak_bytes", "build_peak_bytes"),
    )


KINDS = kinds({"fwd": "forward", "bwd": "backward"})
"""The comparisons of attention; docs/internals/performance.md explains each of them."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        ours: our measurements, in the kind's unit.
        theirs: theirs, in the order of the same rounds.
    """

    name: str
    kind: Kind
    contender: str
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """Theirs divided by ours in ascending order, for each round that both sides completed."""
        return sorted(t / o for o, t in zip(self.ours, self.theirs, strict=False))

    @property
    def ratio(self) -> float:
        """The median ratio: above 1 if this project is better."""
        return median(self.ratios)

    @property
    def verdict(self) -> str:
        """The ratio as a phrase."""
        better, worse = ("faster", "slower") if self.kind.unit == "s" else ("smaller", "larger")
        if abs(self.ratio - 1) <= _SAME:
            return "the same"
        return f"ours is {better if self.ratio > 1 else worse}"


def row_name(kind: Kind, contender: str) -> str:
    """Return a row's name: kernel forward vs AITER with ninja."""
    return f"{kind.name} vs {CONTENDERS[contender]}"


def choose(
    only: Sequence[str],
    every_kind: Iterable[Kind] = KINDS,
    contenders: Iterable[str] = CONTENDERS,
) -> list[tuple[Kind, str]]:
    """Return the rows whose names begin with one of the prefixes `only`, or all rows without one.

    Raises:
        BenchError: no row begins with a prefix.
    """
    every = [(kind, contender) for kind in every_kind for contender in contenders]
    if not only:
        return every
    names = {row_name(*pair): pair for pair in every}
    unknown = [start for start in only if not any(name.startswith(start) for name in names)]
    if unknown:
        raise BenchError(
            Finding(f"--only {unknown[0]}", "no row of that name", "\n".join(names)),
        )
    return [pair for name, pair in names.items() if name.startswith(tuple(only))]


def steps(chosen: Iterable[tuple[Kind, str]]) -> dict[str, set[str]]:
    """Return the steps to take by contender (including "ours"); each needs the cold build."""
    needed: dict[str, set[str]] = {}
    for kind, contender in chosen:
        needed.setdefault("ours", {"cold"}).add(kind.step)
        needed.setdefault(contender, {"cold"})
        if kind.ours == kind.theirs:
            needed[contender].add(kind.step)
    return needed


def rows(
    chosen: Iterable[tuple[Kind, str]],
    measured: Mapping[str, Mapping[str, Sequence[float]]],
) -> list[Row]:
    """Return the rows with measurements of both sides, in the table's order.

    Raises:
        BenchError: a measurement is not above zero.
    """
    found = []
    for kind, contender in chosen:
        ours = measured.get("ours", {}).get(kind.ours)
        theirs = measured.get(contender, {}).get(kind.theirs)
        if not ours or not theirs:
            continue
        name = row_name(kind, contender)
        if min(*ours, *theirs) <= 0:
            raise BenchError(Finding(name, f"ours {ours}, theirs {theirs}", "both above 0"))
        found.append(Row(name, kind, contender, ours, theirs))
    return found


def figures(
    table: Sequence[Row], measured: Mapping[str, Mapping[str, Sequence[float]]]
) -> dict[str, Any]:
    """Return the JSON of a table and of all measurements."""
    return {
        "schema": SCHEMA_VERSION,
        "ratios": {row.name: round(row.ratio, 3) for row in table},
        "rows": [
            {
                "name": row.name,
                "against": CONTENDERS[row.contender],
                "ours": median(row.ours),
                "theirs": median(row.theirs),
                "unit": row.kind.unit,
                "ratio": round(row.ratio, 3),
                "least": round(row.ratios[0], 3),
                "most": round(row.ratios[-1], 3),
                "verdict": row.verdict,
            }
            for row in table
        ],
        "measured": {
            side: {
                name: {"values": list(found), "unit": unit_of(name)}
                for name, found in sorted(values.items())
            }
            for side, values in sorted(measured.items())
        },
    }


def quantity(value: float, unit: str) -> str:
    """Format a measurement."""
    if unit == "s":
        for small, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
            if value * scale < 1000:
                return f"{value * scale:.3g} {small}"
        return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"
    return f"{value / 1e6:,.1f} MB" if value >= 1e7 else f"{value / 1e3:,.1f} kB"


def markdown(found: Mapping[str, Any]) -> str:
    """Return the table as docs/internals/performance.md has it, from the JSON of bench/run."""
    machine, workload = found["machine"], found["workload"]
    kernels = ", ".join(f"{n} {d}" for d, n in sorted(workload["kernels"].items()))
    lines = [
        f"    {found['command']}",
        "",
        f"{machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB of memory, "
        f"{found['jobs']} jobs.",
        f"Kernels: {kernels} ({', '.join(workload['archs'])}); manifest {workload['manifest']}.",
        f"{', '.join(f'{name} {version}' for name, version in found['versions'].items())}.",
        "",
        "| Row | Ours | Theirs | Theirs / ours | Spread | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found["rows"]:
        cells = (
            row["name"],
            quantity(row["ours"], row["unit"]),
            quantity(row["theirs"], row["unit"]),
            f"{row['ratio']:.2f}",
            f"{row['least']:.2f} to {row['most']:.2f}" if row["least"] < row["most"] else "",
            row["verdict"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        [*lines, *([""] if found["notes"] else []), *(f"- {n}" for n in found["notes"])]
    )
