"""Request to and answer of the process that runs `compile` of functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from qola_base.json_types import json_fields, parse_json, reader

_Message = TypeVar("_Message", "Request", "Answer")


@dataclass(frozen=True)
class Call:
    """A call of a module's `compile`; `module` is the name by which AITER imports it."""

    module: str
    arguments: Mapping[str, str | int | bool]


@dataclass(frozen=True)
class Request:
    """Calls for one arch.

    Attributes:
        root, ck_dir: absolute paths of AITER's directory with csrc/ and of Composable Kernel.
        rocm: version of the ROCm that compiles.
    """

    root: str
    ck_dir: str
    arch: str
    rocm: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Result:
    """The library that a call would compile.

    Attributes:
        error: why AITER's Python does not make the library from a template alone, else "".
        flags: compiler flags, in any order.
        copied: absolute paths of files and directories that were copied for includes.
    """

    error: str = ""
    name: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The results of the calls, in their order, and the absolute paths of the files read."""

    results: tuple[Result, ...]
    opened: tuple[str, ...]


def write(message: Request | Answer, path: Path) -> None:
    """Write a message as JSON."""
    path.write_text(json.dumps(message, default=json_fields), encoding="utf-8")


def read(kind: type[_Message], path: Path) -> _Message:
    """Read a message; raise WrongValueError if it is another."""
    hint: Any = kind
    found: _Message = reader(hint)(parse_json(path.read_bytes()))
    return found
