"""Reads packs, the files with kernels of lazy libraries (format: runtime/lazy/pack.h)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from qola.common.packs import MAX_TABLE
from qola_base.errors import BundleError, Finding

MAGIC = b"QOLAPCK1"

_HEADER = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ")
_AGAIN = "build or fetch it again"


def labels_of_pack(file: Path, name: str) -> list[tuple[str, ...]]:
    """Return name, arch and compiler of each kernel in a pack; `name` is its file in errors."""
    with file.open("rb") as pack:
        return [tuple(label.split("\t")) for label, _, _ in _table(pack, name)]


def kernels_of_pack(file: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the label (name and arch) and the content of each kernel in a pack."""
    with file.open("rb") as pack:
        left = end = os.fstat(pack.fileno()).st_size
        for label, offset, size in _table(pack, name):
            left -= size
            if offset + size > end or left < 0:
                raise _short(name)
            pack.seek(offset)
            yield " ".join(label.split("\t")[:2]), pack.read(size)


def _table(pack: BinaryIO, name: str) -> list[tuple[str, int, int]]:
    """Return label, offset and size of each kernel."""
    # Python allocates the buffer of a read first: never request more than the file's size.
    end = os.fstat(pack.fileno()).st_size
    header = pack.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise _short(name)
    _, count, labels = _HEADER.unpack(header)
    table = _HEADER.size + count * _ROW.size + labels
    if table > MAX_TABLE:
        found, expected = f"a table of {table} bytes", f"a table of at most {MAX_TABLE >> 20} MiB"
        raise BundleError(Finding(name, found, expected, _AGAIN))
    if table > end:
        raise _short(name)
    rows = pack.read(count * _ROW.size)
    names = pack.read(labels).decode("utf-8", "replace").splitlines()
    if len(names) != count:
        raise _short(name)
    return [(n, at, size) for n, (_, at, size) in zip(names, _ROW.iter_unpack(rows), strict=True)]


def _short(name: str) -> BundleError:
    return BundleError(Finding(name, "a truncated pack", "a complete pack", _AGAIN))
