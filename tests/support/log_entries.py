"""Entries of execution logs, in the format of Bazel 7."""

from __future__ import annotations

import json
from typing import Any

from qola.report.execution_log import Spawn, parse_spawns


def file(path: str, digest: str) -> dict[str, Any]:
    return {"path": path, "digest": {"hash": digest, "sizeBytes": "1"}}


def entry(
    label: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]], **changes: Any
) -> dict[str, Any]:
    defaults = {
        "commandArgs": ["clang++", "-c", "x.cpp"],
        "inputs": inputs,
        "listedOutputs": [output["path"] for output in outputs],
        "actualOutputs": outputs,
        "mnemonic": "CppCompile",
        "runner": "local",
        "targetLabel": label,
    }
    return {**defaults, **changes}


def text_of(*entries: dict[str, Any]) -> str:
    """Return a log: indented entries without separators."""
    return "".join(json.dumps(e, indent=2) for e in entries) + "\n"


def spawns(*entries: dict[str, Any]) -> tuple[Spawn, ...]:
    """Return the parsed entries of a log."""
    return tuple(parse_spawns(text_of(*entries).splitlines(keepends=True)))
