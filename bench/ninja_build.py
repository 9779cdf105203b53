"""What the builds of others have in common: ninja, in a directory of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench import ninja_log, processes
from bench.processes import Run
from bench.setting import Setting
from bench.workload import Planned, Workload


@dataclass
class NinjaBuild(ABC):
    """A build directory.

    Attributes:
        optional_flags: flags that the compiler accepts, see sdk_facts.
    """

    name: ClassVar[str]
    """Of the directory."""

    setting: Setting
    workload: Workload
    optional_flags: Sequence[str]

    @property
    def directory(self) -> Path:
        """The build directory."""
        return self.setting.work / self.name

    @abstractmethod
    def build(self, planned: Planned, *, more: bool) -> list[Run]:
        """Generate and build.

        Returns:
            The programs that ran, in order.

        Raises:
            BenchError: a program failed, or it would compile other sources than the plan.
        """

    @abstractmethod
    def ninja(self) -> Run:
        """Build again what is there."""

    @abstractmethod
    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""

    def kernel_seconds(self, planned: Planned) -> dict[str, float]:
        """Return the sum of the compiles of each direction's kernels."""
        text = (self.directory / ".ninja_log").read_text(encoding="utf-8")
        return ninja_log.kernel_seconds(ninja_log.parse(text), planned.kernels)

    def patterns(self, *, more: bool) -> Mapping[str, str]:
        """Return the pattern of generate.py by direction."""
        return self.workload.more if more else self.workload.patterns

    def run(self, command: Sequence[str | Path]) -> Run:
        """Run a program in the build directory, with ROCm where it looks for it."""
        return processes.run(
            command, self.setting.log, cwd=self.directory, environ=self.setting.rocm_environ()
        )
