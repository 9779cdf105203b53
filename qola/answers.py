"""Caches answers about an AITER tree: plans, explanations, what generators wrote.

An entry that is cut short, altered, or that another user could have written counts as absent.
Nothing here fails: an answer that cannot be read is computed again, and one that cannot be written
is not cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from qola.cache import distrust, own_directory
from qola.errors import QolaError
from qola.files import UnfitFileError, bounded_bytes, sha256_of_json, whole

DIRECTORY = "generated"
"""Directory of the cache that holds the answers."""

LIMIT = 64 << 20
"""The most bytes of all entries: those of TransformerEngine's manifest have 1.5 MB."""

UNPACKED = 256 << 20
"""The most bytes of an answer: sources of a whole receipt have 30 MB."""

_DIGEST = 32


class AnswerCache:
    """Answers that a question and the state of some files decide, and nothing else.

    Answers are written when the `with` block ends, if the files are still in that state: one that
    was computed while somebody edited a file belongs to neither state.
    """

    def __init__(
        self, directory: Path | None = None, read_state: Callable[[], str] = lambda: ""
    ) -> None:
        """Read the state.

        Args:
            directory: holds the entries; None to cache nothing.
            read_state: returns the digest of everything that decides an answer, except the
                question; "" if that is not known, and nothing can be cached.
        """
        self._directory = directory
        self._read_state = read_state
        self._state = read_state() if directory else ""
        self._made: dict[str, bytes] = {}

    def find_bytes(self, question: object, make: Callable[[], bytes]) -> bytes:
        """Return the answer to a question, computed unless it is cached. Safe to call from threads.

        Args:
            question: JSON value that decides the answer, with a name for its kind.
            make: computes the answer.

        Raises:
            Exception: as `make`; an error is not cached.
        """
        if self._directory is None or not self._state:
            return make()
        key = sha256_of_json({"question": question, "state": self._state})
        data = self._made.get(key)
        if data is None:
            data = read_entry(self._directory, key)
        if data is None:
            data = self._made[key] = make()
        return data

    def find_json(self, question: object, make: Callable[[], Any]) -> Any:
        """Return an answer that is a JSON value, as `find_bytes` does.

        Sequences become lists, whether the answer was cached or not.
        """
        return json.loads(self.find_bytes(question, lambda: json.dumps(make()).encode("ascii")))

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        made, self._made = self._made, {}
        if self._directory is not None and made and self._read_state() == self._state:
            for key, data in made.items():
                write_entry(self._directory, key, data)


NO_ANSWERS = AnswerCache()
"""Caches nothing."""


def read_entry(directory: Path, key: str) -> bytes | None:
    """Return an entry by its key of hexadecimal digits; None if it is absent."""
    path = directory / key
    with suppress(OSError, UnfitFileError, zlib.error):
        # The entry, its directory and those above: who owns each, and who may write to it.
        if distrust(path) is None:
            data = bounded_bytes(path, LIMIT)
            if data[:_DIGEST] == _digest(key, data[_DIGEST:]):
                # `write_entry` and `qola cache --prune` remove what was not used for longest.
                os.utime(path)
                unpacker = zlib.decompressobj()
                content = unpacker.decompress(data[_DIGEST:], UNPACKED)
                return content if unpacker.eof else None
    return None


def write_entry(directory: Path, key: str, content: bytes) -> None:
    """Write an entry, if that is possible; remove the least recently used ones above `LIMIT`."""
    packed = zlib.compress(content, 1)
    with suppress(OSError, QolaError):
        own_directory(directory)
        # A file takes the place of anything else.
        if (directory / key).is_dir() and not (directory / key).is_symlink():
            shutil.rmtree(directory / key)
        with whole(directory / key) as file:
            # A generous umask must not make it an entry that anybody can alter.
            os.fchmod(file.fileno(), 0o600)
            file.write(_digest(key, packed) + packed)
        about = [(path.lstat(), path) for path in directory.iterdir()]
        total = 0
        for status, path in sorted(about, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > LIMIT:
                path.unlink()


def _digest(key: str, packed: bytes) -> bytes:
    """Return the digest of an entry: a renamed entry does not match."""
    return hashlib.sha256(key.encode("ascii") + packed).digest()
