"""The steps of bench/run: prepares compiler and sources, and measures all sides in rounds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from bench import ours
from bench.compiles import (
    Batches,
    Compile,
    ours_per_kernel,
    run_host_passes,
    sample,
    theirs_per_kernel,
)
from bench.first_load import first_load
from bench.ours import Ours, Repeated
from bench.processes import Run
from bench.report import CONTENDERS
from bench.rivals import AiterNinja, CkCmake, NinjaBuild
from bench.setting import ROOT, Setting, TorchSetting, as_distributed, sdk_facts
from bench.workload import Planned, Workload, plan
from qola.aiter.tree import read_tree
from qola.common.version import __version__
from qola.fetch.wheel import read_pin
from qola.report.execution_log import Spawn

_REPETITIONS = 3

Progress = Callable[[str], None]
Costs = Mapping[str, Mapping[str, Compile]]
"""Compiles by name, for each kind: kernel and host."""


@dataclass
class Measurements:
    """Results so far.

    Attributes:
        values: values of each measurement by side and name, in the order of rounds or repetitions;
            the name ends with the unit, seconds or bytes.
        kernels: number of kernel instances by direction.
    """

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, side: str, values: Mapping[str, float]) -> None:
        """Add a value to measurements of a side by name."""
        for name, value in values.items():
            self.values.setdefault(side, {}).setdefault(name, []).append(value)


def totals(
    runs: Sequence[Run], compiles: Mapping[str, Compile] = MappingProxyType({}), jobs: int = 1
) -> dict[str, float]:
    """Return the measurements of a cold build that consists of consecutive programs.

    Args:
        runs: programs before and after the compiles of kernels.
        compiles: compiles of kernels that other programs ran, `jobs` at once. They count as if no
            core had ever been idle, because rounds end with idle cores.
    """
    wall = sum(compile.wall for compile in compiles.values()) / jobs
    cpu = sum(compile.cpu for compile in compiles.values())
    return {
        "cold_seconds": sum(run.seconds for run in runs) + wall,
        "cold_cpu_seconds": sum(run.cpu_seconds for run in runs) + cpu,
    }


def peaks(runs: Sequence[Run]) -> dict[str, float]:
    """Return the peak memory of programs."""
    return {
        "compiler_peak_bytes": max(run.compiler_peak_bytes for run in runs),
        "build_peak_bytes": max(run.build_peak_bytes for run in runs),
    }


def sizes(library: Mapping[str, Path], counts: Mapping[str, int]) -> dict[str, float]:
    """Return the size of each direction's library, in total and per kernel."""
    found: dict[str, float] = {}
    for direction, path in library.items():
        size = path.stat().st_size
        found[f"library_{direction}_bytes"] = size
        found[f"library_{direction}_bytes_per_kernel"] = size / counts[direction]
    return found


@dataclass
class _Parts:
    """The build of a contender, cut into rounds.

    Attributes:
        programs: programs that ran before and after the rounds.
        rounds: runs of ninja that compiled kernels.
        compiles: the last compile of each kernel.
    """

    build: NinjaBuild
    programs: list[Run] = field(default_factory=list)
    rounds: list[Run] = field(default_factory=list)
    compiles: dict[str, Compile] = field(default_factory=dict)

    def compile(self, base: Planned, index: int, rounds: int, *, host: bool) -> Costs:
        """Compile a round's sample; also run the host pass of the first kernel of each batch."""
        objects: dict[str, str] = {}
        first: dict[str, str] = {}
        for direction, batches in base.batches().items():
            for names in batches.values():
                chosen = sample(names, index, rounds)
                paths = {name: self.build.object(direction, name) for name in chosen}
                objects |= paths
                first[chosen[0]] = paths[chosen[0]]
        run, compiles = self.build.compile(objects)
        self.rounds.append(run)
        self.compiles |= compiles
        costs = {"kernel": compiles}
        if host:
            commands = self.build.commands(first)
            costs["host"] = run_host_passes(self.build.setting, self.build.directory, commands)
        return costs


@dataclass
class Bench:
    """A run of bench/run.

    Attributes:
        packages: directory of the pinned CMake and ninja.
        steps: steps by side, see bench.report.steps.
        rounds: number of rounds. Names of kernels are sorted, and differ in properties with two
            values: not a power of two, unless it is 1.
    """

    setting: Setting
    packages: Path
    workload: Workload
    steps: Mapping[str, set[str]]
    rounds: int
    progress: Progress
    results: Measurements = field(default_factory=Measurements)

    def run(self) -> Measurements:
        """Prepare and measure.

        Raises:
            QolaError: a step failed.
        """
        link_tools(self.packages, self.setting.tools)
        with self._step("preparing: compiler and AITER"):
            self._prepare()
        tree = read_tree(self.setting.aiter)
        base = plan(self.workload, tree, self.setting.work / "plan/base", more=False)
        more = base
        if self.workload.more:
            more = plan(self.workload, tree, self.setting.work / "plan/more", more=True)
        self.results.kernels = base.counts()
        self.results.versions = versions(self.setting)
        steps, cache = self.steps["ours"], self.setting.work / "cache"
        with ExitStack() as stack:
            url = stack.enter_context(self._remote()) if "remote" in steps else None
            options = [f"--remote_cache={url}"] if url else []
            first = self._ours("ours", cache, *options)
            with ours.stopped_at_end(first):
                spawns = self._measure_first(first, base)
                names = {name for batches in base.batches().values() for name in batches}
                self._measure_contenders(first.repeated(spawns, names), base, more)
                if "change" in steps:
                    first.build()  # restarts the server
                    first.write(self.workload.manifest(more=True), wheel_pin())
                    with self._step("ours: one-variant change"):
                        self.results.add("ours", {"change_seconds": first.build().seconds})
            if "disk" in steps:
                second = self._ours("elsewhere/second", cache)
                self._measure_warm("disk_seconds", "disk cache", second)
            if url:
                third = self._ours("elsewhere/third", cache, "--disk_cache=", *options)
                self._measure_warm("remote_seconds", "remote cache", third)
        return self.results

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self.progress(title)
        start = time.monotonic()
        yield
        self.progress(f"  took {time.monotonic() - start:.1f} s")

    def _prepare(self) -> None:
        """Fetch compiler and AITER, so that no measurement includes a download."""
        first = self._ours("prepare", self.setting.work / "no_cache")
        with ours.stopped_at_end(first):
            first.write(self.workload.manifest(more=False), wheel_pin())
            first.build("--nobuild")
            # hipcc does not quote what it passes on, and canonical repository names have a ~.
            as_distributed(first.external("rocm_sdk", "sdk"), self.setting.sdk)
            self.setting.aiter.symlink_to(first.external("aiter", "aiter_meta").parent)
            if self.workload.modules:
                torch = TorchSetting.from_repository(
                    first.external("qola_torch", "torch.bzl").parent,
                    first.external("rocm_headers", "headers/usr/include"),
                )
                self.setting = replace(self.setting, torch=torch)

    def _ours(self, name: str, cache: Path, *options: str) -> Ours:
        return Ours(
            setting=self.setting,
            directory=self.setting.work / name,
            modules=[*self.workload.parts.values()],
            cache=cache,
            options=(*options, *(_MODULE_OPTIONS if self.workload.modules else ())),
        )

    def _measure_first(self, first: Ours, base: Planned) -> list[Spawn]:
        """Measure a workspace without caches; return the actions of its cold build."""
        first.write(self.workload.manifest(more=False), wheel_pin())
        with self._step("ours: fetch, plan, analysis"):
            fetched = first.build("--nobuild")
        with self._step("ours: cold build"):
            built, spawns = first.logged_build()
        self.results.add("ours", totals([fetched, built]) | peaks([fetched, built]))
        self.results.add("ours", {"fetch_seconds": fetched.seconds, "build_seconds": built.seconds})
        library = {part: first.library(self.workload.parts[part]) for part in base.kernels}
        self._measure_libraries("ours", library, base)
        self._measure_noop("ours", first.build)
        return spawns

    def _measure_contenders(self, repeated: Repeated, base: Planned, more: Planned) -> None:
        """Measure the builds of the contenders, in rounds in which all sides compile."""
        flags = sdk_facts()["optional_flags"]
        every = (kind(self.setting, self.workload, flags) for kind in (AiterNinja, CkCmake))
        builds = {build.name: _Parts(build) for build in every if build.name in self.steps}
        for side, parts in builds.items():
            with self._step(f"{CONTENDERS[side]}: preparing"):
                parts.programs += parts.build.prepare(base, more=False)
        kinds = {"kernel", "host"} & self.steps["ours"]
        rounds = self.rounds if kinds else 1
        for index in range(rounds):
            for side, parts in builds.items():
                with self._step(f"round {index + 1} of {rounds}: {CONTENDERS[side]}"):
                    costs = parts.compile(base, index, rounds, host="host" in kinds)
                    self._add_costs(side, theirs_per_kernel, costs, base)
            if kinds:
                with self._step(f"round {index + 1} of {rounds}: ours"):
                    costs = repeated.compile(self.setting, host="host" in kinds)
                    self._add_costs("ours", ours_per_kernel, costs, base)
        for side, parts in builds.items():
            with self._step(f"{CONTENDERS[side]}: dispatch and link"):
                parts.programs.append(parts.build.ninja())
            self.results.add(side, totals(parts.programs, parts.compiles, self.setting.jobs))
            self.results.add(side, peaks([*parts.programs, *parts.rounds]))
            library = {direction: parts.build.library(direction) for direction in base.kernels}
            self._measure_libraries(side, library, base)
            self._measure_noop(side, parts.build.ninja)
            if "change" in self.steps[side]:
                with self._step(f"{CONTENDERS[side]}: one-variant change"):
                    runs = [*parts.build.prepare(more, more=True), parts.build.ninja()]
                self.results.add(side, {"change_seconds": sum(run.seconds for run in runs)})

    def _add_costs(
        self,
        side: str,
        per_kernel: Callable[[Batches, Mapping[str, float]], float],
        costs: Costs,
        base: Planned,
    ) -> None:
        for kind, compiles in costs.items():
            cpu = {name: compile.cpu for name, compile in compiles.items()}
            wall = {name: compile.wall for name, compile in compiles.items()}
            for direction, batches in base.batches().items():
                name = f"{kind}_{direction}"
                self.results.add(side, {f"{name}_cpu_seconds": per_kernel(batches, cpu)})
                self.results.add(side, {f"{name}_seconds": per_kernel(batches, wall)})

    def _measure_libraries(self, side: str, library: Mapping[str, Path], base: Planned) -> None:
        self.results.add(side, sizes(library, base.counts()))
        if "load" in self.steps[side]:
            loads = {f"load_{d}_seconds": first_load(path) for d, path in library.items()}
            self.results.add(side, loads)

    def _measure_noop(self, side: str, build: Callable[[], Run]) -> None:
        if "noop" in self.steps[side]:
            with self._step(f"{CONTENDERS.get(side, side)}: no-op"):
                for _ in range(_REPETITIONS):
                    self.results.add(side, {"noop_seconds": build().seconds})

    def _measure_warm(self, name: str, cache: str, elsewhere: Ours) -> None:
        elsewhere.write(self.workload.manifest(more=False), wheel_pin())
        with self._step(f"ours: warm rebuild elsewhere, {cache}"), ours.stopped_at_end(elsewhere):
            run, spawns = elsewhere.logged_build()
        self.results.add("ours", {name: run.seconds})
        missed = Counter(
            spawn.mnemonic
            for spawn in spawns
            if not spawn.cached and spawn.mnemonic not in _NEVER_CACHED
        )
        if missed:
            counts = ", ".join(f"{n} {mnemonic}" for mnemonic, n in sorted(missed.items()))
            self.results.notes.append(f"Missing in the {cache}: {counts} ran again.")

    @contextmanager
    def _remote(self) -> Iterator[str]:
        with self._step("preparing: nginx"):
            start = ours.fetch_cache_server(self.setting)
        directory = self.setting.work / "remote_cache"
        with ours.cache_server(start, directory, self.setting.log) as url:
            yield url


# AITER's side compiles with the same headers.
_MODULE_OPTIONS = ("--@qola//:torch=cpu_check",)

# Bazel performs these itself, within milliseconds.
_NEVER_CACHED = ("SymlinkTree", "FileWrite", "TemplateExpand")


def link_tools(packages: Path, programs: Path) -> None:
    """Make a directory with the programs ninja and cmake of the pinned wheels."""
    programs.mkdir()
    # The wheel's own bin/cmake is a script that needs the package on Python's path.
    (programs / "cmake").symlink_to(packages / "cmake/data/bin/cmake")
    (programs / "ninja").symlink_to(packages / "bin/ninja")


def wheel_pin() -> dict[str, str]:
    """Return package, version and sha256 of the AITER wheel."""
    return read_pin(ROOT)[0]


def versions(setting: Setting) -> dict[str, str]:
    """Return the versions of all programs and sources."""

    def version_of(program: str) -> str:
        output = setting.run([setting.tools / program, "--version"], setting.work).output
        return output.splitlines()[0].split()[-1] if output else ""

    facts = sdk_facts()
    return {
        "qola": __version__,
        "AITER": wheel_pin()["version"],
        "clang": facts["clang_version"],
        "HIP": facts["hip_version"],
        "Bazel": (ROOT / ".bazelversion").read_text(encoding="utf-8").strip(),
        "CMake": version_of("cmake"),
        "ninja": version_of("ninja"),
        "Python": ".".join(map(str, sys.version_info[:3])),
    }
