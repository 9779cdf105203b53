"""Reads Bazel's execution log (--execution_log_json_file): its actions, and compiles of kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.common.layout import KERNEL_COMPILE, action_name
from qola_base.errors import unseen

_Entry = dict[str, Any]
"""An entry of the log; Bazel leaves out fields with default values."""

COMPILED, KEPT = "compiled", "output tree"


@dataclass(frozen=True)
class Spawn:
    """An action that ran, or whose result came from a cache.

    Attributes:
        runner: executor or cache: remote, linux-sandbox, disk cache hit, ...
        inputs: files that it may read: hexadecimal digest of the content by path; for a symbolic
            link that was not followed, its target.
        outputs: digests of the files that it wrote, "" for a declared file that it did not write.
        seconds: wall time without waiting for a slot; 0.0 if the log has none.
        start: UTC start time, "" if the log has none.
    """

    label: str
    mnemonic: str
    runner: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    properties: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    exit_code: int
    seconds: float = 0.0
    start: str = ""

    @property
    def cached(self) -> bool:
        """Whether its result came from a cache."""
        return "cache hit" in self.runner

    @property
    def name(self) -> str:
        """Name of the target without its package; of a kernel's compile, that of the kernel."""
        return action_name(self.mnemonic, self.label, next(iter(self.outputs), ""))

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the action in other logs: the paths of its outputs, sorted."""
        return tuple(sorted(self.outputs))


def read_spawns(log: Path) -> Iterator[Spawn]:
    """Read a log action by action: a log of thousands of actions has gigabytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: not a log, or it ends within an entry.
    """
    with log.open(encoding="utf-8") as file:
        yield from parse_spawns(file)


def parse_spawns(lines: Iterable[str]) -> Iterator[Spawn]:
    """Parse the lines of a log.

    Raises:
        ValueError: not a log, or it ends within an entry.
    """
    try:
        yield from map(_spawn, _objects(lines))
    except RecursionError:
        raise ValueError("values nested too deeply") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"an entry that is not an action: {error!r}") from None


def _spawn(entry: _Entry) -> Spawn:
    metrics = entry.get("metrics", {})
    # Setting up a sandbox counts, waiting for a slot does not.
    total, waited = (parse_duration(metrics.get(n, "0s")) for n in ("totalTime", "queueTime"))
    written = dict(map(_file, entry.get("actualOutputs", ())))
    # The log lists the files of a directory, below the declared path.
    missing = {
        _printable(path): ""
        for path in entry.get("listedOutputs", ())
        if not any(file == path or file.startswith(path + "/") for file in written)
    }
    return Spawn(
        _printable(entry.get("targetLabel", "")),
        _printable(entry["mnemonic"]),
        _printable(entry.get("runner", "")),
        tuple(entry["commandArgs"]),
        {v["name"]: v.get("value", "") for v in entry.get("environmentVariables", ())},
        {p["name"]: p["value"] for p in (entry.get("platform") or {}).get("properties", ())},
        dict(map(_file, entry.get("inputs", ()))),
        written | missing,
        int(entry.get("exitCode", 0)),
        total - waited,
        timestamp(metrics.get("startTime", "")),
    )


def _printable(value: object) -> str:
    if type(value) is not str or unseen(value):
        raise TypeError(f"{value!r:.80} is not printable text")
    return value


def parse_duration(text: str) -> float:
    """Parse protobuf's text for a duration, such as "1.250s", to seconds.

    Raises:
        ValueError: another text.
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]+)?)s", text)
    if match is None:
        raise ValueError(f'{text!r} is not a duration such as "1.250s"')
    return float(match[1])


def timestamp(text: str) -> str:
    """Return a UTC time in seconds precision: "2026-01-31T00:00:00Z"; "" for "".

    Raises:
        ValueError: another text.
    """
    match = re.fullmatch(r"(\d{4}(?:-\d\d){2}T\d\d(?::\d\d){2})(\.\d+)?(Z|\+00:00)", text, re.ASCII)
    if text and match is None:
        raise ValueError(f'{text!r:.80} is not a UTC time such as "2026-01-31T00:00:00Z"')
    return f"{match[1]}Z" if match else ""


def _file(entry: _Entry) -> tuple[str, str]:
    """Return path and digest of a file."""
    digest = (entry.get("digest") or {}).get("hash", "")
    return _printable(entry["path"]), digest or entry.get("symlinkTargetPath", "")


def _objects(log: Iterable[str]) -> Iterator[_Entry]:
    """Parse concatenated JSON objects, each from a line "{" to a line "}"."""
    lines: list[str] = []
    for line in log:
        # Bazel writes no newline between entries.
        if line.startswith("}"):
            yield json.loads("".join([*lines, "}"]))
            rest = line[1:].strip()
            lines = [rest] if rest else []
        else:
            lines.append(line)
    if any(map(str.strip, lines)):
        raise ValueError("the log ends within an entry")


@dataclass(frozen=True)
class Compile:
    """The source of the object of a batch or of a single kernel instance.

    Attributes:
        seconds: wall time of the action without waiting; for a cache, the time to fetch it.
        source: ``compiled``; ``disk cache`` or ``remote cache``; ``output tree`` for the result of
            an earlier build.
    """

    seconds: float | None
    source: str


@dataclass(frozen=True)
class BuildLog:
    """The compiles of a log by batch or kernel instance, and the UTC time of its start."""

    compiles: Mapping[str, Compile]
    start: str


def summarize_log(spawns: Iterable[Spawn]) -> BuildLog:
    """Return compiles and start of a log in one pass, as a log may have gigabytes.

    Of several compiles with one name (a library may be built for other archs) the longest counts.
    """
    start = ""
    found: dict[str, Compile] = {}
    for spawn in spawns:
        start = min(filter(None, (start, spawn.start)), default="")
        if spawn.mnemonic != KERNEL_COMPILE or spawn.exit_code:
            continue
        # Bazel's runner: "disk cache hit", "remote cache hit".
        source = spawn.runner.removesuffix(" hit") if spawn.cached else COMPILED
        if spawn.name not in found or (found[spawn.name].seconds or 0) < spawn.seconds:
            found[spawn.name] = Compile(round(spawn.seconds, 3), source)
    return BuildLog(found, start)
