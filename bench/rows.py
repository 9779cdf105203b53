"""The rows of bench/run's table: each compares one measurement of this project and a contender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.processes import BenchError
from qola.errors import Finding

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
    """

    name: str
    ours: str
    theirs: str

    @property
    def unit(self) -> Unit:
        """The unit of both measurements."""
        return unit_of(self.ours)


def unit_of(name: str) -> Unit:
    """Return the unit of a measurement, by its name."""
    return "s" if name.endswith("seconds") else "bytes"


def _alike(name: str, measured: str) -> Kind:
    return Kind(name, measured, measured)


KINDS = (
    _alike("kernel forward", "kernel_fwd_cpu_seconds"),
    _alike("kernel forward, wall time", "kernel_fwd_seconds"),
    _alike("kernel backward", "kernel_bwd_cpu_seconds"),
    _alike("kernel backward, wall time", "kernel_bwd_seconds"),
    _alike("host pass forward", "host_fwd_cpu_seconds"),
    _alike("host pass backward", "host_bwd_cpu_seconds"),
    _alike("cold build", "cold_seconds"),
    _alike("cold build, CPU time", "cold_cpu_seconds"),
    Kind("cold build, fetched", "build_seconds", "cold_seconds"),
    Kind("warm rebuild elsewhere, disk cache", "disk_seconds", "cold_seconds"),
    Kind("warm rebuild elsewhere, remote cache", "remote_seconds", "cold_seconds"),
    _alike("no-op", "noop_seconds"),
    _alike("one-variant change", "change_seconds"),
    _alike("shipped bytes forward", "library_fwd_bytes_per_kernel"),
    _alike("shipped bytes backward", "library_bwd_bytes_per_kernel"),
    _alike("first load forward", "load_fwd_seconds"),
    _alike("first load backward", "load_bwd_seconds"),
    _alike("peak memory, compiler", "compiler_peak_bytes"),
    _alike("peak memory, build", "build_peak_bytes"),
)
"""docs/internals/performance.md explains each of them."""

_STEPS = {
    **{f"kernel_{d}{cpu}_seconds": "kernel" for d in ("fwd", "bwd") for cpu in ("", "_cpu")},
    **{f"host_{d}_cpu_seconds": "host" for d in ("fwd", "bwd")},
    **{f"load_{d}_seconds": "load" for d in ("fwd", "bwd")},
    "disk_seconds": "disk",
    "remote_seconds": "remote",
    "noop_seconds": "noop",
    "change_seconds": "change",
}


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


def choose(only: Sequence[str]) -> list[tuple[Kind, str]]:
    """Return the rows whose names begin with one of the prefixes `only`, or all rows without one.

    Raises:
        BenchError: no row begins with a prefix.
    """
    every = [(kind, contender) for kind in KINDS for contender in CONTENDERS]
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
        needed.setdefault("ours", {"cold"}).add(_STEPS.get(kind.ours, "cold"))
        needed.setdefault(contender, {"cold"}).add(_STEPS.get(kind.theirs, "cold"))
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
