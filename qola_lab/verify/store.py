"""Stores verdicts in qola's cache, by everything that decides them.

A question names the kernel's code and its problems. An edit of a source file that decides verdicts,
or another version of a package, makes the stored ones invalid. To try all kernels again, remove the
directory `verdicts` of the cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qola.common.answers import prune_entries, read_entry, write_entry
from qola.common.packages import ROOT, find_modules
from qola_base.cache import cache_directory
from qola_base.files import sha256_of, sha256_of_json
from qola_base.json_types import WrongValueError, json_fields, parse_json, reader

DIRECTORY = "verdicts"
"""Directory of the cache with verdicts."""

_REPLAY = "qola_lab.verify.replay"
"""The module whose sources decide the outcome of a recorded case."""
_PACKAGES = ("numpy", "tinygrad")
"""Packages whose arithmetic and tables of instructions decide it, too."""


def sources_digest(root: Path = ROOT) -> str:
    """Return the digest of all that decides the outcome of a case, except the case.

    These are the modules of the emulator, the reference and the comparison, the emulator's engine
    in C and the versions of packages.
    """
    files = [*find_modules(_REPLAY, root=root), *sorted((root / "gfxemu").glob("*.[ch]"))]
    sources = [[path.relative_to(root).as_posix(), sha256_of(path)] for path in files]
    return sha256_of_json([sources, [[name, version(name)] for name in _PACKAGES]])


class VerdictStore:
    """Verdicts of any dataclass, by a question.

    Attributes:
        sources: digest of the sources that decide the verdicts.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read the sources, and remove the least recently used verdicts above the limit."""
        self._directory = cache_directory(environ) / DIRECTORY
        self.sources = sources_digest()
        prune_entries(self._directory)

    def find(self, question: object, kind: Any) -> Any:
        """Return the verdict for a question, a JSON value; None if there is none of this type."""
        content = read_entry(self._directory, self._key(question))
        with suppress(WrongValueError):
            return None if content is None else reader(kind)(parse_json(content))
        return None

    def store(self, question: object, verdict: Any) -> None:
        """Store a verdict at once, so that an interrupted run keeps it."""
        content = json.dumps(verdict, default=json_fields).encode("ascii")
        write_entry(self._directory, self._key(question), content)

    def _key(self, question: object) -> str:
        return sha256_of_json([question, self.sources])
