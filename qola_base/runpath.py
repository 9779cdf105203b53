"""Hides and shows the RUNPATH by which libraries of a wheel find the HIP runtime of pip.

Its entries lead out of the library's directory: $ORIGIN/../../rocm/lib. In site-packages, only the
user can write there. The directory above a bundle may be /tmp, where everybody can create rocm/lib:
a bundle's libraries have the same bytes, with another tag in place of RUNPATH, which no loader
reads.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_RUNPATH = 29
_HIDDEN = 0x60514F4C
"""A tag of the range for operating systems, which loaders ignore if they do not know it."""

_STRTAB = 5
_LOAD, _DYNAMIC = 1, 2
_ELF = b"\x7fELF\x02\x01"
_OURS = b"$ORIGIN/../_rocm_sdk_core/lib"
"""The first entry (rules/private/cc.bzl). Other libraries keep the RUNPATH of who linked them."""


def hide_runpath(library: Path) -> None:
    """Hide the RUNPATH of a library in a bundle; other files stay."""
    with (
        suppress(ValueError),  # an empty file
        library.open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as data,
    ):
        _replace(data, _RUNPATH, _HIDDEN)


def show_runpath(library: bytes) -> bytes:
    """Return a bundle's library as a wheel has it; other files unchanged."""
    data = bytearray(library)
    return bytes(data) if _replace(data, _HIDDEN, _RUNPATH) else library


def has_runpath(library: Path) -> bool:
    """Return whether a file is a library with such a RUNPATH."""
    with (
        suppress(ValueError),
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _find(data, _RUNPATH) is not None
    return False


def _replace(data: bytearray | mmap.mmap, old: int, new: int) -> bool:
    position = _find(data, old)
    if position is None:
        return False
    data[position : position + 8] = struct.pack("<q", new)
    return True


def _find(data: bytearray | mmap.mmap, tag: int) -> int | None:
    """Return the position of the dynamic entry with a tag and these directories."""
    if data[: len(_ELF)] != _ELF:
        return None
    with suppress(struct.error, StopIteration):
        rows = {found: (place, value) for place, found, value in dynamic_entries(data)}
        if tag in rows:
            place, value = rows[tag]
            names = rows[_STRTAB][1] if _STRTAB in rows else 0
            start = next(
                offset + names - address
                for kind, offset, address, size in segments(data)
                if kind == _LOAD and address <= names < address + size
            )
            end = data.find(b"\0", start + value)
            if _OURS in data[start + value : end]:
                return place
    return None


def dynamic_entries(data: bytearray | mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Yield position, tag and value of the dynamic entries of an ELF file of 64 bits."""
    for kind, offset, _, size in segments(data):
        if kind == _DYNAMIC:
            for place in range(offset, offset + size, 16):
                yield (place, *struct.unpack_from("<qQ", data, place))


def segments(data: bytearray | mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, offset, address and size in the file of the segments of such a file."""
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    for number in range(count):
        kind, _, offset, address, _, stored = struct.unpack_from(
            "<IIQQQQ", data, start + number * size
        )
        yield kind, offset, address, stored
