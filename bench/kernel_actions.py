"""What Bazel's actions for kernel instances cost, from its execution log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bench.errors import BenchError
from qola.errors import Finding
from qola.layout import KERNEL_COMPILE
from qola.report.execution_log import Spawn


def kernel_seconds(
    spawns: Iterable[Spawn], kernels: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """Return the sum over all that is done for each direction's kernels.

    Args:
        spawns: actions of a build without cache hits.
        kernels: names of what is compiled by direction: batches, and kernel instances in none.

    Raises:
        BenchError: a kernel has no action, or came from a cache.
    """
    sums = dict.fromkeys(kernels, 0.0)
    direction_of = {name: direction for direction, names in kernels.items() for name in names}
    made = set()
    for spawn in spawns:
        if spawn.mnemonic != KERNEL_COMPILE or spawn.name not in direction_of:
            continue
        if spawn.cached:
            found = f"{spawn.mnemonic} of {spawn.name} by {spawn.runner}"
            raise BenchError(Finding("execution log", found, "a cold build: everything compiled"))
        sums[direction_of[spawn.name]] += spawn.seconds
        made.add(spawn.name)
    missing = sorted(direction_of.keys() - made)
    if missing:
        found = f"no action for {len(missing)} kernels, such as {missing[0]}"
        raise BenchError(Finding("execution log", found, "one of each kernel of the list"))
    return sums


def ran(spawns: Iterable[Spawn]) -> Counter[str]:
    """Return how many actions of each mnemonic ran, rather than came from a cache."""
    return Counter(spawn.mnemonic for spawn in spawns if not spawn.cached)
