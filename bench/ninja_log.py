"""Reads .ninja_log: how long each output took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from bench.errors import BenchError
from qola.errors import Finding


def parse(text: str) -> dict[str, float]:
    """Return seconds by output, of the last run that made it.

    Args:
        text: content of a .ninja_log: a line "start end mtime output hash", times in milliseconds.

    Raises:
        BenchError: it is not a log, or of a form that is not known.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# ninja log v"):
        found = lines[0] if lines else "an empty file"
        raise BenchError(Finding(".ninja_log", found, "a first line '# ninja log v7'"))
    seconds = {}
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("\t")
        if len(fields) != 5 or not (fields[0].isdigit() and fields[1].isdigit()):
            expected = "start, end, mtime, output and hash between tabs"
            raise BenchError(Finding(f".ninja_log:{number}", line, expected))
        seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def source_of(output: str) -> str:
    """Return the name of the source an output is made of: x.dir/kernel.cpp.o is kernel."""
    return PurePosixPath(output).name.partition(".")[0]


def kernel_seconds(
    seconds: Mapping[str, float], kernels: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """Return the sum over each direction's kernels.

    Args:
        seconds: seconds by output, see `parse`.
        kernels: names of the kernel instances by direction.

    Raises:
        BenchError: an object of a kernel is not in the log: the sum would be too small.
    """
    by_source = {source_of(out): time for out, time in seconds.items() if out.endswith(".o")}
    missing = sorted({name for names in kernels.values() for name in names} - by_source.keys())
    if missing:
        found = f"no object of {len(missing)} kernels, such as {missing[0]}"
        raise BenchError(Finding(".ninja_log", found, "one of each kernel of the list"))
    return {
        direction: sum(by_source[name] for name in names) for direction, names in kernels.items()
    }
