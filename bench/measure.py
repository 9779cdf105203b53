"""The steps of bench/run: prepares compiler and sources, then measures one side after the other."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import ours, processes
from bench.aiter_ninja import AiterNinja
from bench.ck_cmake import CkCmake
from bench.ninja_build import NinjaBuild
from bench.ours import Ours
from bench.processes import Run
from bench.rows import CONTENDERS
from bench.setting import ROOT, Setting, as_distributed, sdk_facts
from bench.workload import MODULES, Planned, Workload, plan
from qola.aiter.tree import read_tree
from qola.fetch.wheel import read_pin
from qola.version import __version__

_REPETITIONS = 3

Progress = Callable[[str], None]


@dataclass
class Measurements:
    """Results so far.

    Attributes:
        values: measurements by side and name; the name ends with the unit, seconds or bytes.
        kernels: number of kernel instances by direction.
        more: the same with the further variant.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    kernels: dict[str, int] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, side: str, values: Mapping[str, float]) -> None:
        """Add measurements of a side by name."""
        self.values.setdefault(side, {}).update(values)


def totals(runs: Sequence[Run]) -> dict[str, float]:
    """Return the measurements of a cold build that consists of consecutive programs."""
    return {
        "cold_seconds": sum(run.seconds for run in runs),
        "compiler_peak_bytes": max(run.compiler_peak_bytes for run in runs),
        "build_peak_bytes": max(run.build_peak_bytes for run in runs),
    }


def per_kernel(seconds: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
    """Return the mean time per kernel from sums by direction."""
    return {f"kernel_{d}_seconds": total / counts[d] for d, total in seconds.items()}


def sizes(library: Callable[[str], Path], counts: Mapping[str, int]) -> dict[str, float]:
    """Return the size of each direction's library, in total and per kernel."""
    found: dict[str, float] = {}
    for direction, count in counts.items():
        size = library(direction).stat().st_size
        found[f"library_{direction}_bytes"] = size
        found[f"library_{direction}_bytes_per_kernel"] = size / count
    return found


@dataclass
class Bench:
    """A run of bench/run.

    Attributes:
        work: an empty directory for all files.
        packages: directory of the pinned CMake and ninja.
        steps: steps by side, see bench.rows.steps.
        jobs: number of concurrent compiles.
    """

    work: Path
    packages: Path
    workload: Workload
    steps: Mapping[str, set[str]]
    jobs: int
    environ: Mapping[str, str]
    progress: Progress
    results: Measurements = field(default_factory=Measurements)

    def run(self) -> Measurements:
        """Prepare and measure.

        Raises:
            QolaError: a step failed.
        """
        with ExitStack() as stack:
            tools = link_tools(self.packages, self.work)
            with self._step("preparing: compiler and AITER"):
                setting = stack.enter_context(self._prepared(tools))
            tree = read_tree(setting.aiter)
            base = plan(self.workload, tree, self.work / "plan/base", more=False)
            more = plan(self.workload, tree, self.work / "plan/more", more=True)
            self.results.kernels, self.results.more = base.counts(), more.counts()
            self.results.versions = versions(setting)
            flags = sdk_facts()["optional_flags"]
            for side, contender in (
                ("aiter", AiterNinja(setting, self.workload, flags)),
                ("cmake", CkCmake(setting, self.workload, flags)),
            ):
                if side in self.steps:
                    self._measure_contender(side, contender, base, more)
        self._measure_ours(base)
        return self.results

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self.progress(title)
        start = time.monotonic()
        yield
        self.progress(f"  took {time.monotonic() - start:.1f} s")

    @contextmanager
    def _prepared(self, tools: Path) -> Iterator[Setting]:
        """Fetch compiler and AITER, so that no measurement includes a download."""
        first = self._ours("prepare", self.work / "no_cache")
        with ours.stopped_at_end(first):
            first.write(self.workload.manifest(more=False), wheel_pin())
            first.build("--nobuild")
            sdk = self.work / "sdk"
            # hipcc does not quote what it passes on, and canonical repository names have a ~.
            as_distributed(first.external("qola_rocm_sdk", "sdk"), sdk)
            aiter = self.work / "aiter_tree"
            aiter.symlink_to(first.external("aiter", "aiter_meta").parent)
        yield Setting(self.work, sdk, aiter, tools, self.jobs, self.environ)

    def _ours(self, name: str, disk_cache: Path, *options: str) -> Ours:
        return Ours(
            directory=self.work / name,
            modules=[MODULES[direction] for direction in self.workload.patterns],
            disk_cache=disk_cache,
            jobs=self.jobs,
            log=self.work / "log.txt",
            environ=self.environ,
            options=options,
        )

    def _measure_contender(
        self, side: str, contender: NinjaBuild, base: Planned, more: Planned
    ) -> None:
        name, steps = CONTENDERS[side], self.steps[side]
        with self._step(f"{name}: cold build"):
            runs = contender.build(base, more=False)
        self.results.add(side, totals(runs))
        self.results.add(side, per_kernel(contender.kernel_seconds(base), base.counts()))
        self.results.add(side, sizes(contender.library, base.counts()))
        if "noop" in steps:
            with self._step(f"{name}: no-op"):
                self.results.add(side, {"noop_seconds": median(contender.ninja)})
        if "change" in steps:
            with self._step(f"{name}: one-variant change"):
                runs = contender.build(more, more=True)
            self.results.add(side, {"change_seconds": totals(runs)["cold_seconds"]})

    def _measure_ours(self, base: Planned) -> None:
        steps, disk_cache = self.steps["ours"], self.work / "disk_cache"
        with ExitStack() as stack:
            url = stack.enter_context(self._remote()) if "remote" in steps else None
            options = [f"--remote_cache={url}"] if url else []
            first = self._ours("ours", disk_cache, *options)
            with ours.stopped_at_end(first):
                self._measure_first(first, base)
            if "disk" in steps:
                second = self._ours("elsewhere/second", disk_cache)
                self._measure_warm("disk_seconds", "disk cache", second)
            if url:
                third = self._ours("elsewhere/third", disk_cache, "--disk_cache=", *options)
                self._measure_warm("remote_seconds", "remote cache", third)

    def _measure_first(self, first: Ours, base: Planned) -> None:
        steps, pin = self.steps["ours"], wheel_pin()
        first.write(self.workload.manifest(more=False), pin)
        with self._step("ours: fetch, plan, analysis"):
            fetched = first.build("--nobuild")
        with self._step("ours: cold build"):
            built, spawns = first.logged_build()
        self.results.add("ours", totals([fetched, built]))
        self.results.add("ours", {"fetch_seconds": fetched.seconds, "build_seconds": built.seconds})
        self.results.add(
            "ours", per_kernel(ours.kernel_seconds(spawns, base.compiled()), base.counts())
        )
        library = {direction: first.library(MODULES[direction]) for direction in base.kernels}
        self.results.add("ours", sizes(library.__getitem__, base.counts()))
        if "noop" in steps:
            with self._step("ours: no-op"):
                self.results.add("ours", {"noop_seconds": median(first.build)})
        if "change" in steps:
            first.write(self.workload.manifest(more=True), pin)
            with self._step("ours: one-variant change"):
                self.results.add("ours", {"change_seconds": first.build().seconds})

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
        log = self.work / "log.txt"
        with self._step("preparing: nginx"):
            start = ours.fetch_cache_server(self.work, log, self.environ)
        with ours.cache_server(start, self.work / "remote_cache", log) as url:
            yield url


# Bazel performs these itself, within milliseconds.
_NEVER_CACHED = ("SymlinkTree", "FileWrite", "TemplateExpand")


def median(build: Callable[[], Run]) -> float:
    """Return the median seconds of a few builds."""
    return statistics.median(build().seconds for _ in range(_REPETITIONS))


def link_tools(packages: Path, work: Path) -> Path:
    """Return a directory with the programs ninja and cmake of the pinned wheels."""
    programs = work / "programs"
    programs.mkdir()
    # The wheel's own bin/cmake is a script that needs the package on Python's path.
    (programs / "cmake").symlink_to(packages / "cmake/data/bin/cmake")
    (programs / "ninja").symlink_to(packages / "bin/ninja")
    return programs


def wheel_pin() -> dict[str, str]:
    """Return package, version and sha256 of the AITER wheel."""
    return read_pin(ROOT)[0]


def versions(setting: Setting) -> dict[str, str]:
    """Return the versions of all programs and sources."""

    def version_of(*command: str) -> str:
        output = processes.run(
            command, setting.log, cwd=setting.work, environ=setting.rocm_environ()
        ).output
        return output.splitlines()[0].split()[-1] if output else ""

    facts = sdk_facts()
    return {
        "qola": __version__,
        "AITER": wheel_pin()["version"],
        "clang": facts["clang_version"],
        "HIP": facts["hip_version"],
        "Bazel": (ROOT / ".bazelversion").read_text(encoding="utf-8").strip(),
        "CMake": version_of(str(setting.tools / "cmake"), "--version"),
        "ninja": version_of(str(setting.tools / "ninja"), "--version"),
        "Python": ".".join(map(str, sys.version_info[:3])),
    }
