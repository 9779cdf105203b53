"""Times of compiles: they run through the program bench/timed, in rounds in which sides alternate.

A round compiles a sample of each batch's kernels on the other sides, and all batches on ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from bench.processes import BenchError
from bench.setting import Setting
from qola_base.errors import Finding

Batches = Mapping[str, Sequence[str]]
"""Kernels by the name of their batch; a kernel outside batches has its own name."""

TIMED = Path(__file__).resolve().parent / "timed"
"""A program that runs a compile and logs its times."""


@dataclass(frozen=True)
class Compile:
    """Seconds of a compile with all its processes."""

    cpu: float
    wall: float


def read_compiles(log: Path, names: Iterable[str]) -> dict[str, Compile]:
    """Return the last compile of each source in a log of the program bench/timed.

    Args:
        names: names of sources without directory and suffixes.

    Raises:
        BenchError: the log has no compile of a source.
    """
    found = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        *texts, path = line.split(maxsplit=3)
        # bash writes the decimal separator of the locale.
        user, system, wall = (float(text.replace(",", ".")) for text in texts)
        found[Path(path).name.partition(".")[0]] = Compile(user + system, wall)
    missing = sorted(set(names) - found.keys())
    if missing:
        text = f"no compile of {len(missing)} sources, such as {missing[0]}"
        raise BenchError(Finding(str(log), text, "a compile of each source"))
    return {name: found[name] for name in names}


def sample(names: Sequence[str], index: int, rounds: int) -> Sequence[str]:
    """Return the names that a round compiles: all names in all rounds, and at least one in each."""
    return names[index::rounds] or [names[index % len(names)]]


def theirs_per_kernel(batches: Batches, seconds: Mapping[str, float]) -> float:
    """Return the mean per kernel, estimated from a sample of each batch.

    Args:
        seconds: by kernel of the sample.
    """
    means = {b: mean(seconds[n] for n in names if n in seconds) for b, names in batches.items()}
    return sum(len(names) * means[b] for b, names in batches.items()) / _count(batches)


def ours_per_kernel(batches: Batches, seconds: Mapping[str, float]) -> float:
    """Return the mean per kernel from the seconds of each batch."""
    return sum(seconds[batch] for batch in batches) / _count(batches)


def _count(batches: Batches) -> int:
    return sum(map(len, batches.values()))


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
    setting.run(["ninja", "-f", "commands.ninja", "-j", str(setting.jobs)], directory)
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
