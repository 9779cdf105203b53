"""Counts how far a build is: kernels done, from the cache, and the time that is left."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.build.events import EventReader, FinishedAction
from qola.errors import QolaError
from qola.layout import KERNEL_COMPILE
from qola.plan.model import Plan

_SHORTEST_COMPILE = 2.0
"""Seconds. Of the measured compiles (qola/inspect/costs.json) none is half as short; what a cache
gives takes a fraction of it."""

_KNOWN_SHARE = 0.1
"""The part of the compiles from which the time of the others is estimated: the first that end are
the quickest."""

_JITTER = 1.1


@dataclass(frozen=True)
class Counts:
    """How far a build is.

    Attributes:
        seconds_left: None before enough kernels were compiled, and when nothing is left.
    """

    total: int
    done: int
    compiled: int
    seconds_left: float | None

    def describe(self) -> str:
        """Return it in words: 12 of 48 kernels, 3 from cache, about 4 min left."""
        words = f"{self.done} of {self.total} kernels, {self.done - self.compiled} from cache"
        if self.seconds_left is None:
            return words
        minutes = round(self.seconds_left / 60)
        left = f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"
        return f"{words}, about {left if minutes else '1 min'} left"


def count(
    actions: Sequence[FinishedAction],
    kernels: Mapping[str, int],
    jobs: int,
    remaining: int | None,
    now: float,
) -> Counts:
    """Count kernels by what Bazel says of its actions.

    Bazel names an action when it is done, and not whether a cache had it. So many jobs finish no
    more than so many compiles in the time that the shortest takes: what comes faster was cached.

    Args:
        kernels: what the build compiles, by name: the number of kernel instances in each.
        remaining: actions that are to be done yet, None for not known. What Bazel's own
            output tree has is no action, so no more compiles are left than that.
        now: seconds since the build began, as actions have them.
    """
    start = actions[0].seconds if actions else now
    free = [start] * jobs
    compiled: set[str] = set()
    done: set[str] = set()
    for action in actions:
        if action.name not in kernels or action.mnemonic != KERNEL_COMPILE:
            continue
        if action.seconds - free[0] >= _SHORTEST_COMPILE:
            heapq.heapreplace(free, action.seconds)
            compiled.add(action.name)
        done.add(action.name)
    undone = sorted(kernels[name] for name in kernels.keys() - done)
    # Before a compile has ended, Bazel may not have counted all that is to be done.
    if remaining is not None and compiled:
        undone = undone[max(0, len(undone) - remaining) :]
    left, finished = sum(undone), sum(kernels[name] for name in compiled)
    spent = now - start
    total = sum(kernels.values())
    known = len(compiled) >= jobs and finished >= _KNOWN_SHARE * (finished + left)
    seconds = left * spent / finished if known and left else None
    return Counts(total, total - left, finished, seconds)


def planned_kernels(repository: str, modules: Sequence[str]) -> Callable[[Path], Mapping[str, int]]:
    """Return a function that reads what modules compile: by name, the kernel instances in each.

    It takes the directory with Bazel's external repositories, where the plan is once Bazel has
    analysed; it returns nothing where there is none that can be read.
    """

    def read(external: Path) -> Mapping[str, int]:
        # Bazel puts ~ or + between the parts of a repository's canonical name.
        found = [*external.glob(f"*[~+]qola_{repository}/plan.json")]
        if len(found) != 1:
            return {}
        try:
            plan = Plan.from_json(found[0].read_text(encoding="utf-8"))
        except (OSError, ValueError, QolaError):
            return {}
        return Counter(
            name
            for module in plan.with_kernels
            if module.name in modules
            for name in plan.compiled_as(module)
        )

    return read


class TimeLeft:
    """Keeps the time that is left from growing: a longer estimate is not told."""

    def __init__(self) -> None:
        self._told = math.inf

    def told(self, seconds: float | None) -> float | None:
        """Return the estimate, no longer than the last; None where it is longer by far."""
        if seconds is None or seconds > self._told * _JITTER:
            return None
        self._told = min(self._told, seconds)
        return self._told


class Status:
    """What to say of a build at a moment.

    Attributes:
        share: the part of the kernels that is done, None before it is known.
    """

    def __init__(
        self, reader: EventReader, kernels: Callable[[Path], Mapping[str, int]], cores: int
    ):
        self._reader = reader
        self._read = kernels
        self._kernels: Mapping[str, int] | None = None
        self._cores = cores
        self._left = TimeLeft()
        self.share: float | None = None

    def text(self, now: float) -> str:
        """Return how many kernels are done, before that what Bazel says; "" for nothing.

        Args:
            now: seconds since the build began.
        """
        reader = self._reader
        # The action of a target: before, the plan may be that of an earlier build.
        planned = reader.exit_code == 0 or any(action.name for action in reader.actions)
        if self._kernels is None and planned and reader.exec_root:
            self._kernels = self._read(reader.exec_root.parent.parent / "external")
        if not self._kernels:
            return reader.last_progress() if reader.exit_code is None else ""
        jobs = reader.jobs or self._cores
        counts = count(reader.actions, self._kernels, jobs, reader.remaining(), now)
        if reader.exit_code == 0:
            counts = Counts(counts.total, counts.total, counts.compiled, None)
        self.share = counts.done / counts.total
        return replace(counts, seconds_left=self._left.told(counts.seconds_left)).describe()
