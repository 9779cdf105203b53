"""Caches answers about an AITER tree: plans, explanations and the output of generators.

A truncated or altered entry, one of another shape, or one that another user can write to counts as
missing. The cache raises no errors: an unreadable answer is computed again, and an unwritable one
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
from typing import Any, TypeVar

from qola_base.cache import distrust, foreign, own_directory
from qola_base.errors import QolaError
from qola_base.files import UnfitFileError, bounded_bytes, sha256_of_json, whole
from qola_base.json_types import WrongValueError, json_fields, parse_json, reader

DIRECTORY = "generated"
"""Directory of the cache that holds the answers."""

LIMIT = 64 << 20
"""Maximum size of all entries in bytes; TransformerEngine's manifest has 1.5 MB."""

UNPACKED = 256 << 20
"""Maximum size of an unpacked answer in bytes; the sources of a whole receipt have 30 MB."""

_DIGEST = 32

_Answer = TypeVar("_Answer")


class AnswerCache:
    """Answers that depend on a question and on the state of some files only.

    Answers are written at the end of the `with` block if the files are still in the same state. An
    answer that was computed during an edit belongs to neither state.
    """

    def __init__(
        self, directory: Path | None = None, read_state: Callable[[], str] = lambda: ""
    ) -> None:
        """Read the state.

        Args:
            directory: holds the entries; None to cache nothing.
            read_state: returns the digest of everything else that an answer depends on; "" if it
                is unknown, so that nothing can be cached.
        """
        self._directory = directory
        self._read_state = read_state
        self._state = read_state() if directory else ""
        self._new: dict[str, bytes] = {}

    def find_read(
        self, question: object, compute: Callable[[], bytes], read: Callable[[bytes], _Answer]
    ) -> _Answer:
        """Read the cached answer to a question, or compute it. Safe to call from threads.

        Args:
            question: JSON value that decides the answer, and names its kind.
            read: raises WrongValueError for bytes of another shape; such an entry is replaced.

        Raises:
            Exception: as `compute`; an error is not cached. As `read` for computed bytes.
        """
        if self._directory is None or not self._state:
            return read(compute())
        key = sha256_of_json({"question": question, "state": self._state})
        data = self._new.get(key) or read_entry(self._directory, key)
        if data is not None:
            with suppress(WrongValueError):
                return read(data)
        data = self._new[key] = compute()
        return read(data)

    def find(self, question: object, kind: Any, compute: Callable[[], Any]) -> Any:
        """Return an answer of a type that `qola_base.json_types.reader` reads, as `find_read` does.

        A computed answer that cannot be read again, as with a path outside of the locale's
        encoding, is returned as it is.
        """
        computed: list[Any] = []

        def to_json() -> bytes:
            computed.append(compute())
            return json.dumps(computed[0], default=json_fields).encode("ascii")

        def read(data: bytes) -> Any:
            try:
                return reader(kind)(parse_json(data))
            except WrongValueError:
                if computed:
                    return computed[0]
                raise

        return self.find_read(question, to_json, read)

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(self, *_: object) -> None:
        new, self._new = self._new, {}
        if self._directory is not None and new and self._read_state() == self._state:
            for key, data in new.items():
                write_entry(self._directory, key, data)
            prune_entries(self._directory)


NO_ANSWERS = AnswerCache()
"""Caches nothing."""


def read_entry(directory: Path, key: str) -> bytes | None:
    """Return an entry by its hexadecimal key; None if it is missing."""
    path = directory / key
    with suppress(OSError, UnfitFileError, zlib.error):
        # Checks owner and permissions of the entry, its directory and those above.
        if distrust(path) is None:
            data = bounded_bytes(path, LIMIT)
            if data[:_DIGEST] == _digest(key, data[_DIGEST:]):
                # `prune_entries` and `qola cache --prune` remove the least recently used entries.
                os.utime(path)
                unpacker = zlib.decompressobj()
                content = unpacker.decompress(data[_DIGEST:], UNPACKED)
                return content if unpacker.eof else None
    return None


def write_entry(directory: Path, key: str, content: bytes) -> None:
    """Write an entry if possible."""
    packed = zlib.compress(content, 1)
    with suppress(OSError, QolaError):
        own_directory(directory)
        # Replacing a directory by a file fails.
        if (directory / key).is_dir() and not (directory / key).is_symlink():
            shutil.rmtree(directory / key)
        with whole(directory / key) as file:
            # Independent of the umask: an entry that a group can write to is not read.
            os.fchmod(file.fileno(), 0o600)
            file.write(_digest(key, packed) + packed)


def prune_entries(directory: Path) -> None:
    """Remove the least recently used entries above `LIMIT`; it reads the time of each entry."""
    with suppress(OSError):
        if foreign(directory):
            return
        entries = [(path.lstat(), path) for path in directory.iterdir()]
        total = 0
        for status, path in sorted(entries, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > LIMIT:
                path.unlink()


def _digest(key: str, packed: bytes) -> bytes:
    """Return the digest of an entry; it includes the key, so a renamed entry does not match."""
    return hashlib.sha256(key.encode("ascii") + packed).digest()
