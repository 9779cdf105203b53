"""Reads Bazel's execution log: what each action cost, and for which kernels it ran."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.errors import BenchError
from qola.errors import Finding

_KERNEL_REPOSITORY = re.compile(r"qola_kernels_\w+$")
_DIRECTIONS = ("fwd_splitkv", "batch_prefill", "fwd", "bwd")
# Makes something that several kernels' compiles read.
_SHARED = re.compile(r"pch|precompile", re.IGNORECASE)


@dataclass(frozen=True)
class Spawn:
    """One action that ran, or whose result came from a cache.

    Attributes:
        mnemonic: kind of action.
        label: target it belongs to.
        outputs: paths of what it made.
        runner: what ran it, or "disk cache hit", "remote cache hit".
        seconds: time it took, without waiting for its turn.
    """

    mnemonic: str
    label: str
    outputs: tuple[str, ...]
    runner: str
    seconds: float

    @property
    def cached(self) -> bool:
        """Whether a cache had it."""
        return "cache hit" in self.runner


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield JSON objects written one after the other, as --execution_log_json_file has them."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        found, position = decoder.raw_decode(text, position)
        yield found


def parse(text: str) -> list[Spawn]:
    """Return the log's actions, in its order."""
    return [_spawn(found) for found in objects(text)]


def _spawn(found: Mapping[str, Any]) -> Spawn:
    metrics = found.get("metrics", {})
    # Waiting for one of the jobs is not work; setting up a sandbox is.
    seconds = duration(metrics.get("totalTime", "0s")) - duration(metrics.get("queueTime", "0s"))
    return Spawn(
        mnemonic=found.get("mnemonic", ""),
        label=found.get("targetLabel", ""),
        outputs=tuple(found.get("listedOutputs", ())),
        runner=found.get("runner", ""),
        seconds=seconds,
    )


def duration(text: str) -> float:
    """Return seconds of a duration as protobuf writes it: "1.250s".

    Raises:
        BenchError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s", text)
    if match is None:
        raise BenchError(Finding("execution log", text, 'a duration such as "1.250s"'))
    return float(match[1])


def direction_of(spawn: Spawn) -> str | None:
    """Return the direction whose kernels an action serves; None for other actions.

    Raises:
        BenchError: a precompiled header that cannot be said to be of a direction: leaving it out
            would make kernels look cheaper than they are.
    """
    repository, _, rest = spawn.label.partition("//")
    if _KERNEL_REPOSITORY.search(repository):
        package = rest.partition(":")[0]
        for direction in _DIRECTIONS:
            if package == direction or package.startswith(direction + "_"):
                return direction
        raise _unknown(spawn)
    if _SHARED.search(spawn.mnemonic):
        raise _unknown(spawn)
    return None


def _unknown(spawn: Spawn) -> BenchError:
    return BenchError(
        Finding(
            f"execution log, {spawn.mnemonic} of {spawn.label}",
            "an action for kernels of no direction that is known",
            f"a package of the kernel repository that begins with {', '.join(_DIRECTIONS)}",
            "teach bench/execution_log.py what it serves",
        )
    )


def kernel_seconds(
    spawns: Iterable[Spawn], kernels: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """Return the sum over all that is done for each direction's kernels, shared headers included.

    Args:
        spawns: actions of a build without cache hits.
        kernels: names of the kernel instances by direction.

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
        made |= {spawn.label.partition(":")[2], *(source_of(out) for out in spawn.outputs)}
    missing = sorted({name for names in kernels.values() for name in names} - made)
    if missing:
        found = f"no action for {len(missing)} kernels, such as {missing[0]}"
        raise BenchError(Finding("execution log", found, "one of each kernel of the list"))
    return {direction: sums[direction] for direction in kernels}


def source_of(output: str) -> str:
    """Return the name of the source an output is made of."""
    return output.rpartition("/")[2].partition(".")[0]


def ran(spawns: Iterable[Spawn]) -> Counter[str]:
    """Return how many actions of each mnemonic ran, rather than came from a cache."""
    return Counter(spawn.mnemonic for spawn in spawns if not spawn.cached)
