"""Answers of CK's generator that are kept, and what decides them.

The key of an answer has the request, Python's version, qola's own files and all files beside the
generator and below, by content. The answer is kept only where the generator's process saw that
nothing else was read, and where these files are the same before and after.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.codegen import kept
from qola.files import sha256_of, sha256_of_json

DIRECTORY = "generated"
"""Directory of the cache that has the answers."""

_PACKAGE = Path(__file__).absolute().parent.parent


@dataclass(frozen=True)
class Answer:
    """What a generator answered.

    Attributes:
        reads: what `qola.codegen.reads.Reads` saw.
    """

    data: bytes
    reads: Collection[str]


def answered(
    directory: Path | None, script: Path, request: Mapping[str, Any], run: Callable[[], Answer]
) -> bytes:
    """Return what a generator answers to a request, without running it if that is known.

    Args:
        directory: has the answers; None to run the generator whatever is known.
        script: the generator.
        request: all else that decides the answer, as JSON values.

    Raises:
        Exception: as `run`.
    """
    if directory is None:
        return run().data
    before = _inputs(script)
    key = sha256_of_json({"request": request, **before})
    data = kept.get(directory, key)
    if data is None:
        answer = run()
        data = answer.data
        if before["files"].keys() >= set(answer.reads) and before == _inputs(script):
            kept.put(directory, key, data)
    return data


def _inputs(script: Path) -> dict[str, Any]:
    """Return what decides an answer besides the request."""
    return {
        "script": os.path.abspath(script),
        "files": _files(os.path.abspath(script.parent)),
        **own_inputs(),
    }


def own_inputs() -> dict[str, Any]:
    """Return what of qola and Python decides an answer."""
    return {
        "qola": _files(str(_PACKAGE)),
        # Generators may import from there too, and so from what comes there before Python's own.
        "beside": sorted(os.listdir(_PACKAGE.parent)),
        "python": sys.version,
    }


def _files(folder: str) -> dict[str, Any]:
    """Return the digest of each file below a folder, and the names in each directory."""
    found: dict[str, Any] = {}
    for path, folders, files in os.walk(folder):
        # Byte code is not read (qola.codegen.bytecode).
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
        found[path] = [folders[:], sorted(files)]
        for file in (os.path.join(path, name) for name in files):
            found[file] = ""
            with suppress(OSError):
                if os.path.isfile(file):  # no FIFO, and no link that leads nowhere
                    found[file] = sha256_of(Path(file))
    return found
