"""Common parts of the builds with ninja: the build directory, and the times of compiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench import processes
from bench.processes import Run
from bench.rounds import Compile, read_compiles
from bench.setting import Setting
from bench.workload import Planned, Workload

TIMED = Path(__file__).resolve().parent / "timed"
"""A program that runs a compile and logs its times."""


@dataclass
class NinjaBuild(ABC):
    """A build with ninja, in its own directory. Its compiles run through TIMED.

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
    def prepare(self, planned: Planned, *, more: bool) -> list[Run]:
        """Generate the sources and build.ninja; return the programs that ran, in order.

        Raises:
            BenchError: a program failed, or ninja would compile other sources than the plan.
        """

    @abstractmethod
    def object(self, direction: str, kernel: str) -> str:
        """Return the path of a kernel's object, relative to the build directory."""

    @abstractmethod
    def library(self, direction: str) -> Path:
        """Return the path of a direction's library."""

    def ninja(self, *targets: str) -> Run:
        """Run ninja for some targets, or for all."""
        return self.run(["ninja", "-j", str(self.setting.jobs), *targets])

    def compile(self, objects: Mapping[str, str]) -> tuple[Run, dict[str, Compile]]:
        """Compile kernels, again if their objects exist; return the times by kernel.

        Args:
            objects: path by kernel.
        """
        for path in objects.values():
            (self.directory / path).unlink(missing_ok=True)
        run = self.ninja(*objects.values())
        return run, read_compiles(self.directory / "timed.log", objects)

    def commands(self, objects: Mapping[str, str]) -> dict[str, str]:
        """Return the shell commands that compile kernels, by kernel; `objects` as for `compile`."""
        return {
            name: self.run(["ninja", "-t", "commands", "-s", path]).output.strip()
            for name, path in objects.items()
        }

    def patterns(self, *, more: bool) -> Mapping[str, str]:
        """Return the pattern of generate.py by direction."""
        return self.workload.more if more else self.workload.patterns

    def run(self, command: Sequence[str | Path]) -> Run:
        """Run a program in the build directory, in the environment of the SDK."""
        return processes.run(
            command, self.setting.log, cwd=self.directory, environ=self.setting.rocm_environ()
        )


def run_commands(
    setting: Setting, directory: Path, commands: Mapping[str, str]
) -> dict[str, Compile]:
    """Run compiles through TIMED, `setting.jobs` at once; return their times by name.

    Args:
        directory: working directory.
        commands: shell commands by the name of the source, the first ones first.
    """
    lines = ["rule timed", "  command = $timed"]
    for name, command in commands.items():
        # Never written, so that ninja runs the command each time.
        lines += [f"build {name}.timed: timed", f"  timed = {command.replace('$', '$$')}"]
    (directory / "commands.ninja").write_text("\n".join([*lines, ""]), encoding="utf-8")
    processes.run(
        ["ninja", "-f", "commands.ninja", "-j", str(setting.jobs)],
        setting.log,
        cwd=directory,
        environ=setting.rocm_environ(),
    )
    return read_compiles(directory / "timed.log", commands)


def run_host_passes(
    setting: Setting, directory: Path, commands: Mapping[str, str]
) -> dict[str, Compile]:
    """Run only the host passes of compiles; arguments and result as of `run_commands`."""
    host = {
        # TIMED logs the last argument.
        f"host_{name}": f"{command} --offload-host-only -Qunused-arguments -o host_{name}"
        for name, command in commands.items()
    }
    found = run_commands(setting, directory, host)
    return {name: found[f"host_{name}"] for name in commands}
