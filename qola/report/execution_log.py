"""Bazel's execution log (--execution_log_json_file): what ran, where, from what, to what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.errors import unseen
from qola.layout import action_name


@dataclass(frozen=True)
class LoggedFile:
    """A file an action read or wrote.

    Attributes:
        digest: of its content, in hexadecimal; the target of a symbolic link that was not
            followed; "" for an output that was not written.
        size: bytes.
    """

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class Spawn:
    """One action that ran, or whose result came from a cache.

    Attributes:
        runner: where it ran or which cache had it: remote, linux-sandbox, disk cache hit, ...
        inputs: files it may read.
        outputs: files it made, and those it ought to have made.
        seconds: wall time it took, without waiting for its turn; 0.0 where the log has none.
        start: UTC time at which it started, "" where the log has none.
    """

    label: str
    mnemonic: str
    runner: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    properties: Mapping[str, str]
    inputs: tuple[LoggedFile, ...]
    outputs: tuple[LoggedFile, ...]
    exit_code: int
    seconds: float = 0.0
    start: str = ""

    @property
    def cached(self) -> bool:
        """Whether a cache had its result."""
        return "cache hit" in self.runner

    @property
    def input_digests(self) -> dict[str, str]:
        """The digest of each file it may read, by path."""
        return {file.path: file.digest for file in self.inputs}

    @property
    def output_digests(self) -> dict[str, str]:
        """The digest of each file it made, by path."""
        return {file.path: file.digest for file in self.outputs}

    @property
    def name(self) -> str:
        """Name of the target without its package; of a kernel's compile, that of the kernel."""
        return action_name(self.mnemonic, self.label, self.outputs[0].path if self.outputs else "")

    @property
    def key(self) -> tuple[str, ...]:
        """What the action is found by in another log: the files it writes, sorted."""
        return tuple(sorted(file.path for file in self.outputs))


def read_spawns(log: Path) -> Iterator[Spawn]:
    """Read a log, one action at a time: that of thousands of actions has gigabytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a log, or ends within an entry.
    """
    with log.open(encoding="utf-8") as file:
        yield from parse_spawns(file)


def parse_spawns(lines: Iterable[str]) -> Iterator[Spawn]:
    """Read a log's lines, as read_spawns does.

    Raises:
        ValueError: they are no log, or end within an entry.
    """
    try:
        yield from map(_spawn, _objects(lines))
    except RecursionError:
        raise ValueError("values too deep within each other") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"an entry that is not an action: {error!r}") from None


def _spawn(entry: Mapping[str, Any]) -> Spawn:
    written = tuple(map(_file, entry.get("actualOutputs", ())))
    # A directory's files are written one by one, below what was declared.
    missing = tuple(
        LoggedFile(_word(path), "", 0)
        for path in entry.get("listedOutputs", ())
        if not any(f.path == path or f.path.startswith(path + "/") for f in written)
    )
    return Spawn(
        _word(entry.get("targetLabel", "")),
        _word(entry["mnemonic"]),
        _word(entry.get("runner", "")),
        tuple(entry["commandArgs"]),
        {v["name"]: v.get("value", "") for v in entry.get("environmentVariables", ())},
        {p["name"]: p["value"] for p in (entry.get("platform") or {}).get("properties", ())},
        tuple(map(_file, entry.get("inputs", ()))),
        written + missing,
        int(entry.get("exitCode", 0)),
        _seconds(entry.get("metrics", {})),
        timestamp(entry.get("metrics", {}).get("startTime", "")),
    )


def _word(value: object) -> str:
    if type(value) is not str or unseen(value):
        raise TypeError(f"{value!r:.80} is no text that can be shown")
    return value


def _seconds(metrics: Mapping[str, Any]) -> float:
    # Waiting for one of the jobs is not work; setting up a sandbox is.
    return duration(metrics.get("totalTime", "0s")) - duration(metrics.get("queueTime", "0s"))


def duration(text: str) -> float:
    """Return seconds of a duration as protobuf writes it: "1.250s".

    Raises:
        ValueError: it is none.
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]+)?)s", text)
    if match is None:
        raise ValueError(f'{text!r} is not a duration such as "1.250s"')
    return float(match[1])


def timestamp(text: str) -> str:
    """Return a UTC time to the second: "2026-01-31T00:00:00Z"; "" for "".

    Raises:
        ValueError: it is another text.
    """
    match = re.fullmatch(r"(\d{4}(?:-\d\d){2}T\d\d(?::\d\d){2})(\.\d+)?(Z|\+00:00)", text, re.ASCII)
    if text and match is None:
        raise ValueError(f'{text!r:.80} is not a UTC time such as "2026-01-31T00:00:00Z"')
    return f"{match[1]}Z" if match else ""


def _file(entry: Mapping[str, Any]) -> LoggedFile:
    digest = entry.get("digest") or {}
    name = digest.get("hash", "") or entry.get("symlinkTargetPath", "")
    return LoggedFile(_word(entry["path"]), name, int(digest.get("sizeBytes", 0)))


def _objects(log: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read JSON objects written one after the other, each from a line "{" to a line "}"."""
    lines: list[str] = []
    for line in log:
        # Between entries Bazel breaks no line.
        if line.startswith("}"):
            yield json.loads("".join([*lines, "}"]))
            rest = line[1:].strip()
            lines = [rest] if rest else []
        else:
            lines.append(line)
    if any(map(str.strip, lines)):
        raise ValueError("the log ends within an entry")
