"""Bazel's execution log (--execution_log_json_file): what ran, where, from what, to what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoggedFile:
    """A file an action read or wrote.

    Attributes:
        path: relative to the execution root.
        digest: of its content, in hexadecimal; "" for a symbolic link that was not followed.
        size: bytes.
    """

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class Spawn:
    """One action that ran, or whose result came from a cache.

    Attributes:
        label: its target.
        mnemonic: its kind.
        runner: where it ran or which cache had it: remote, linux-sandbox, disk cache hit, ...
        arguments: its command line.
        properties: platform properties sent with it.
        inputs: files it may read.
        outputs: files it made.
        exit_code: of the command.
    """

    label: str
    mnemonic: str
    runner: str
    arguments: tuple[str, ...]
    properties: Mapping[str, str]
    inputs: tuple[LoggedFile, ...]
    outputs: tuple[LoggedFile, ...]
    exit_code: int


def read_spawns(log: Path) -> Iterator[Spawn]:
    """Read a log, one action at a time: that of thousands of actions has gigabytes.

    Raises:
        ValueError: it is none, or ends within an entry.
    """
    for entry in _objects(log):
        yield Spawn(
            entry.get("targetLabel", ""),
            entry["mnemonic"],
            entry["runner"],
            tuple(entry["commandArgs"]),
            {p["name"]: p["value"] for p in (entry.get("platform") or {}).get("properties", ())},
            tuple(map(_file, entry["inputs"])),
            tuple(map(_file, entry["actualOutputs"])),
            int(entry["exitCode"]),
        )


def _file(entry: Mapping[str, Any]) -> LoggedFile:
    digest = entry.get("digest") or {}
    return LoggedFile(entry["path"], digest.get("hash", ""), int(digest.get("sizeBytes", 0)))


def _objects(log: Path) -> Iterator[dict[str, Any]]:
    """Read JSON objects written one after the other, each from a line "{" to a line "}"."""
    lines: list[str] = []
    with log.open(encoding="utf-8") as file:
        for line in file:
            # Between entries Bazel breaks no line.
            if line.startswith("}"):
                yield json.loads("".join([*lines, "}"]))
                rest = line[1:].strip()
                lines = [rest] if rest else []
            else:
                lines.append(line)
    if any(map(str.strip, lines)):
        raise ValueError(f"{log} ends within an entry")
