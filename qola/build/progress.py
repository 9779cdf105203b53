"""Measures the progress of a build: kernels done, cached, and the remaining time."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qola.build.events import EventReader, FinishedAction
from qola.common.layout import KERNEL_COMPILE
from qola.plan.model import Plan
from qola_base.errors import QolaError
from qola_base.progress import duration

_SHORTEST_COMPILE = 2.0
"""Seconds. Each measured compile (qola/query/costs.json) takes at least twice as long; a cached
result takes a fraction."""

_KNOWN_SHARE = 0.1
"""Fraction of the compiles needed for an estimate: the first ones to end are the quickest."""


@dataclass(frozen=True)
class Counts:
    """Numbers of kernels in a build; the remaining time is known after some compiles."""

    total: int
    done: int
    compiled: int
    seconds_left: float | None

    def describe(self) -> str:
        """Return a line such as "12 of 48 kernels, 3 from cache, about 4 min left"."""
        words = f"{self.done} of {self.total} kernels, {self.done - self.compiled} from cache"
        if self.seconds_left is None:
            return words
        return f"{words}, about {duration(max(60.0, self.seconds_left))} left"


def count(
    actions: Sequence[FinishedAction],
    kernels: Mapping[str, int],
    jobs: int,
    remaining: int | None,
    now: float,
) -> Counts:
    """Count kernels by Bazel's finished actions.

    Bazel does not report cache hits. `jobs` jobs finish at most `jobs` compiles in the time of the
    shortest compile; results that arrive faster were cached.

    Args:
        kernels: number of kernel instances in each compile, by name.
        remaining: actions that are left, None if unknown: an upper bound for compiles, because
            results in Bazel's output tree need no action.
        now: seconds since the build began, as in `actions`.
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
    # Until a compile has ended, Bazel's own count may be too low.
    if remaining is not None and compiled:
        undone = undone[max(0, len(undone) - remaining) :]
    left, finished = sum(undone), sum(kernels[name] for name in compiled)
    spent = now - start
    total = sum(kernels.values())
    known = len(compiled) >= jobs and finished >= _KNOWN_SHARE * (finished + left)
    seconds = left * spent / finished if known and left else None
    return Counts(total, total - left, finished, seconds)


def planned_kernels(external: Path, modules: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the number of kernel instances in each compile.

    A manifest without a readable plan, or with several, counts nothing.

    Args:
        external: directory of Bazel's external repositories, with the plans after the analysis.
        modules: the modules of each manifest, by the manifest's Bazel name.
    """
    counts: dict[str, int] = {}
    for manifest, names in modules.items():
        # Bazel puts ~ or + between the parts of a repository's canonical name.
        files = [*external.glob(f"*[~+]qola_{manifest}/plan.json")]
        if len(files) != 1:
            continue
        with suppress(OSError, ValueError, QolaError):
            plan = Plan.from_json(files[0].read_text(encoding="utf-8"))
            chosen = [module for module in plan.with_kernels if module.name in names]
            # Manifests share compiles of one name.
            counts |= Counter(name for module in chosen for name in plan.compiled_as(module))
    return counts


class Status:
    """The progress of a running build; `share` is the fraction of finished kernels, if known."""

    def __init__(self, reader: EventReader, modules: Mapping[str, Sequence[str]], cores: int):
        self._reader = reader
        self._modules = modules
        self._kernels: Mapping[str, int] | None = None
        self._cores = cores
        self.share: float | None = None

    def text(self, now: float) -> str:
        """Return the counts of kernels or the phase, the running action, and the elapsed time.

        Args:
            now: seconds since the build began.
        """
        parts = [self._work(now)]
        if self._reader.exit_code is None and (action := self._reader.running()):
            verb = "waits for a core" if action.waits else "runs"
            parts.append(f"{action.name} {verb} for {duration(max(0.0, now - action.start))}")
        parts = [part for part in parts if part]
        return "; ".join([*parts, f"{duration(now)} elapsed"]) if parts else ""

    def _work(self, now: float) -> str:
        """Return the counts of kernels; before these are known, the phase."""
        reader = self._reader
        # Before the first action of a target, the plan may belong to an earlier build.
        planned = reader.exit_code == 0 or any(action.name for action in reader.actions)
        if self._kernels is None and planned and reader.external:
            self._kernels = planned_kernels(reader.external, self._modules)
        if not self._kernels:
            return self._phase() if reader.exit_code is None else ""
        jobs = reader.jobs or self._cores
        counts = count(reader.actions, self._kernels, jobs, reader.remaining(), now)
        if reader.exit_code == 0:
            counts = Counts(counts.total, counts.total, counts.compiled, None)
        self.share = counts.done / counts.total
        return counts.describe()

    def _phase(self) -> str:
        """Return the phase of a build whose kernels are unknown, and the repositories in work."""
        reader = self._reader
        if reader.external and (names := unfinished(reader.external)):
            return f"fetching and planning {', '.join(names)}"
        progress = reader.last_progress()
        return f"{progress.partition(']')[0]}] actions" if reader.running() else progress


def unfinished(external: Path) -> list[str]:
    """Return the repositories that Bazel fetches now: it writes the marker file at the end."""
    with suppress(OSError):
        names = {path.name for path in external.iterdir()}
        # The last part of a canonical name, qola~~qola~qola_te.
        begun = [name for name in names if name[0] != "@" and f"@{name}.marker" not in names]
        return sorted(re.split("[~+]", name)[-1] for name in begun)
    return []
