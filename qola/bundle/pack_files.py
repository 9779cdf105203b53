"""Reads the kernel libraries in a pack, a file of lazy libraries' kernels (cc/runtime/pack.h)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from qola.errors import BundleError, Finding

MAGIC = b"QOLAPCK1"

_HEADER = struct.Struct("<8sII")
_ROW = struct.Struct("<32sQQ")


def kernels_of_pack(file: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and arch of each kernel in a pack, and its library with what follows it.

    Args:
        name: what an error calls the file.

    Raises:
        BundleError: the pack ends before what its table names.
    """
    with file.open("rb") as pack:
        header = pack.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise _short(name)
        _, count, labels = _HEADER.unpack(header)
        rows = pack.read(count * _ROW.size)
        names = pack.read(labels).decode("utf-8", "replace").splitlines()
        if len(rows) < count * _ROW.size or len(names) != count:
            raise _short(name)
        for label, (_, offset, size) in zip(names, _ROW.iter_unpack(rows), strict=True):
            pack.seek(offset)
            library = pack.read(size)
            if len(library) < size:
                raise _short(name)
            yield " ".join(label.split("\t")[:2]), library


def _short(name: str) -> BundleError:
    return BundleError(
        Finding(name, "a pack that ends too early", "a whole pack", "make or fetch it again")
    )
