"""What Bazel's actions for kernel instances cost, from its execution log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from bench.errors import BenchError
from bench.ninja_log import source_of
from qola.errors import Finding
from qola.report.execution_log import Spawn

_KERNEL_REPOSITORY = re.compile(r"qola_kernels_\w+$")
_DIRECTIONS = ("fwd_splitkv", "batch_prefill", "fwd", "bwd")


def direction_of(spawn: Spawn) -> str | None:
    """Return the direction whose kernels an action serves; None for other actions.

    Raises:
        BenchError: an action for kernels that cannot be said to be of a direction: leaving it out
            would make them look cheaper than they are.
    """
    repository, _, rest = spawn.label.partition("//")
    if _KERNEL_REPOSITORY.search(repository):
        package = rest.partition(":")[0]
        for direction in _DIRECTIONS:
            if package == direction or package.startswith(direction + "_"):
                return direction
        raise _unknown(spawn)
    return None


def _unknown(spawn: Spawn) -> BenchError:
    return BenchError(
        Finding(
            f"execution log, {spawn.mnemonic} of {spawn.label}",
            "an action for kernels of no direction that is known",
            f"a package of the kernel repository that begins with {', '.join(_DIRECTIONS)}",
            "teach bench/kernel_actions.py what it serves",
        )
    )


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
    made = set()
    for spawn in spawns:
        direction = direction_of(spawn)
        if direction is None:
            continue
        if spawn.cached:
            found = f"{spawn.mnemonic} of {spawn.label} by {spawn.runner}"
            raise BenchError(Finding("execution log", found, "a cold build: everything compiled"))
        sums[direction] = sums.get(direction, 0.0) + spawn.seconds
        made |= {spawn.label.partition(":")[2], *(source_of(out) for out in spawn.key)}
    missing = sorted({name for names in kernels.values() for name in names} - made)
    if missing:
        found = f"no action for {len(missing)} kernels, such as {missing[0]}"
        raise BenchError(Finding("execution log", found, "one of each kernel of the list"))
    return {direction: sums[direction] for direction in kernels}


def ran(spawns: Iterable[Spawn]) -> Counter[str]:
    """Return how many actions of each mnemonic ran, rather than came from a cache."""
    return Counter(spawn.mnemonic for spawn in spawns if not spawn.cached)
