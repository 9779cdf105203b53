"""Common parts of the two builds with ninja: the build directory, and compile times in its log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench import processes
from bench.processes import BenchError, Run
from bench.setting import Setting
from bench.workload import Planned, Workload
from qola.errors import Finding


@dataclass
class NinjaBuild(ABC):
    """A build with ninja, in its own directory.

    Attributes:
        optional_flags: flags of sdk_facts that the compiler accepts.
    """

    name: ClassVar[str]
    """Name of the directory."""

    setting: Setting
    workload: Workload
    optional_flags: Sequence[str]

    @property
    def directory(self) -> Path:
        """The build directory."""
        return self.setting.work / self.name

    @abstractmethod
    def build(self, planned: Planned, *, more: bool) -> list[Run]:
        """Generate and build; return the programs that ran, in order.

        Raises:
            BenchError: a program failed, or it would compile other sources than the plan.
        """

    @abstractmethod
    def ninja(self) -> Run:
        """Run ninja again in the existing build directory."""

    @abstractmethod
    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""

    def kernel_seconds(self, planned: Planned) -> dict[str, float]:
        """Return the sum of the compile times of each direction's kernels, from .ninja_log.

        A line of that log is "start end mtime output hash" between tabs; times in milliseconds.

        Raises:
            BenchError: the log has no object of a kernel, so the sum would be too small.
        """
        seconds = {}
        log = (self.directory / ".ninja_log").read_text(encoding="utf-8")
        for line in log.splitlines()[1:]:
            start, end, _, output, _ = line.split("\t")
            if output.endswith(".o"):
                seconds[Path(output).name.partition(".")[0]] = (int(end) - int(start)) / 1000
        missing = [name for names in planned.kernels.values() for name in names]
        missing = sorted(set(missing) - seconds.keys())
        if missing:
            found = f"no object of {len(missing)} kernels, such as {missing[0]}"
            raise BenchError(Finding(".ninja_log", found, "an object of each kernel"))
        return {d: sum(seconds[name] for name in names) for d, names in planned.kernels.items()}

    def patterns(self, *, more: bool) -> Mapping[str, str]:
        """Return the pattern of generate.py by direction."""
        return self.workload.more if more else self.workload.patterns

    def run(self, command: Sequence[str | Path]) -> Run:
        """Run a program in the build directory, in the environment of the SDK."""
        return processes.run(
            command, self.setting.log, cwd=self.directory, environ=self.setting.rocm_environ()
        )
