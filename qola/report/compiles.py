"""What Bazel did for each source of device code: compiled it, or took it from which cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from qola.layout import KERNEL_COMPILE
from qola.report.execution_log import Spawn

COMPILED, KEPT = "compiled", "output tree"


@dataclass(frozen=True)
class Compile:
    """How the object of a batch, or of a kernel instance alone, came about.

    Attributes:
        seconds: wall time of the action, without waiting; of a cache's answer, that of getting it.
        source: ``compiled``; ``disk cache`` or ``remote cache``; ``output tree``, where Bazel
            had it from an earlier build.
    """

    seconds: float | None
    source: str


@dataclass(frozen=True)
class BuildLog:
    """An execution log's compiles by batch or kernel instance, and the UTC time of its start."""

    compiles: Mapping[str, Compile]
    start: str


def summarize_log(spawns: Iterable[Spawn]) -> BuildLog:
    """Return a log's compiles and start, in one pass: a log may have gigabytes."""
    start = ""

    def watch() -> Iterator[Spawn]:
        nonlocal start
        for spawn in spawns:
            start = min(filter(None, (start, spawn.start)), default="")
            yield spawn

    found = compiles(watch())
    return BuildLog(found, start)


def compiles(spawns: Iterable[Spawn]) -> dict[str, Compile]:
    """Return what was done in a build by the name of the batch or kernel instance.

    Of several actions of a name (a library is built for some archs, too) the longest counts.
    """
    found: dict[str, Compile] = {}
    for spawn in spawns:
        if spawn.mnemonic != KERNEL_COMPILE or spawn.exit_code:
            continue
        # As Bazel says it: "disk cache hit", "remote cache hit".
        source = spawn.runner.removesuffix(" hit") if spawn.cached else COMPILED
        made = Compile(round(spawn.seconds, 3), source)
        if spawn.name not in found or (found[spawn.name].seconds or 0) < spawn.seconds:
            found[spawn.name] = made
    return found
