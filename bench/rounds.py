"""Divides the kernels of a workload into rounds, and computes costs per kernel of a round.

A round compiles a sample of each batch's kernels on the other sides, and all batches on ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bench.processes import BenchError
from qola_base.errors import Finding

Batches = Mapping[str, Sequence[str]]
"""Kernels by the name of their batch; a kernel outside batches has its own name."""


@dataclass(frozen=True)
class Compile:
    """Seconds of a compile with all its processes."""

    cpu: float
    wall: float


def read_compiles(log: Path, names: Iterable[str]) -> dict[str, Compile]:
    """Return the last compile of each source in a log of the program bench/timed.

    Args:
        names: names of sources without directory and suffixes.

    Raises:
        BenchError: the log has no compile of a source.
    """
    found = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        *texts, path = line.split(maxsplit=3)
        # bash writes the decimal separator of the locale.
        user, system, wall = (float(text.replace(",", ".")) for text in texts)
        found[Path(path).name.partition(".")[0]] = Compile(user + system, wall)
    missing = sorted(set(names) - found.keys())
    if missing:
        text = f"no compile of {len(missing)} sources, such as {missing[0]}"
        raise BenchError(Finding(str(log), text, "a compile of each source"))
    return {name: found[name] for name in names}


def sample(names: Sequence[str], index: int, rounds: int) -> Sequence[str]:
    """Return the names that a round compiles: all names in all rounds, and at least one in each."""
    return names[index::rounds] or [names[index % len(names)]]


def theirs_per_kernel(batches: Batches, seconds: Mapping[str, float]) -> float:
    """Return the mean per kernel, estimated from a sample of each batch.

    Args:
        seconds: by kernel of the sample.
    """
    means = {b: mean(seconds[n] for n in names if n in seconds) for b, names in batches.items()}
    return sum(len(names) * means[b] for b, names in batches.items()) / _count(batches)


def ours_per_kernel(batches: Batches, seconds: Mapping[str, float]) -> float:
    """Return the mean per kernel from the seconds of each batch."""
    return sum(seconds[batch] for batch in batches) / _count(batches)


def _count(batches: Batches) -> int:
    return sum(map(len, batches.values()))
