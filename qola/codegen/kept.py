"""Bytes that are kept by a digest of all that decides them, in a directory of the cache.

An entry that is cut short, altered or another's is not there. Nothing here fails: what cannot be
kept or read is made anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

from qola.cache import distrust, own_directory
from qola.errors import QolaError
from qola.files import UnfitFileError, bounded_bytes, whole

LIMIT = 64 << 20
"""The most bytes of all entries: those of TransformerEngine's manifest have 1.5 MB."""

_DIGEST = 32


def get(directory: Path, key: str) -> bytes | None:
    """Return what is kept by a key of hexadecimal digits, None where there is nothing whole."""
    path = directory / key
    with suppress(OSError, UnfitFileError, zlib.error):
        if distrust(directory) is None:
            data = bounded_bytes(path, LIMIT)
            if data[:_DIGEST] == _digest(key, data[_DIGEST:]):
                # When it was last used: `put` and `qola cache --prune` go by that.
                os.utime(path)
                unpacker = zlib.decompressobj()
                content = unpacker.decompress(data[_DIGEST:], LIMIT)
                return content if unpacker.eof else None
    return None


def put(directory: Path, key: str, content: bytes) -> None:
    """Keep something, if that is possible; what was not used for longest makes room for it."""
    packed = zlib.compress(content, 1)
    with suppress(OSError, QolaError):
        own_directory(directory)
        # A file takes the place of anything else.
        if (directory / key).is_dir() and not (directory / key).is_symlink():
            shutil.rmtree(directory / key)
        with whole(directory / key) as file:
            file.write(_digest(key, packed) + packed)
        about = [(path.lstat(), path) for path in directory.iterdir()]
        total = 0
        for status, path in sorted(about, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > LIMIT:
                path.unlink()


def _digest(key: str, packed: bytes) -> bytes:
    """Return the digest of an entry: under another name it is another."""
    return hashlib.sha256(key.encode("ascii") + packed).digest()
