"""Shows the RUNPATH by which libraries of a wheel find the HIP runtime of pip.

Its entries lead out of the library's directory: $ORIGIN/../../rocm/lib. In site-packages, only the
user can write there. The directory above another library may be /tmp, where everybody can create
rocm/lib: Bazel links libraries with these entries, and rules/private/strip.sh gives them another
tag in place of RUNPATH, which no loader reads. A wheel has the same bytes with RUNPATH.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress

_RUNPATH = 29
_HIDDEN = 0x60514F4C
"""A tag of the range for operating systems, which loaders ignore if they do not know it."""

_STRTAB = 5
_LOAD, _DYNAMIC = 1, 2
_ELF = b"\x7fELF\x02\x01"
_OURS = b"$ORIGIN/../_rocm_sdk_core/lib"
"""The first entry (rules/private/link.bzl)."""


def show_runpath(library: bytes) -> bytes:
    """Return a library as a wheel has it; other files unchanged."""
    position = _find_hidden(library)
    if position is None:
        return library
    return library[:position] + struct.pack("<q", _RUNPATH) + library[position + 8 :]


def _find_hidden(data: bytes) -> int | None:
    """Return the position of the dynamic entry with the hidden directories."""
    if data[: len(_ELF)] != _ELF:
        return None
    with suppress(struct.error, StopIteration):
        rows = {found: (place, value) for place, found, value in dynamic_entries(data)}
        if _HIDDEN in rows:
            place, value = rows[_HIDDEN]
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


def dynamic_entries(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield position, tag and value of the dynamic entries of an ELF file of 64 bits."""
    for kind, offset, _, size in segments(data):
        if kind == _DYNAMIC:
            for place in range(offset, offset + size, 16):
                yield (place, *struct.unpack_from("<qQ", data, place))


def segments(data: bytes | bytearray) -> Iterator[tuple[int, int, int, int]]:
    """Yield type, offset, address and size in the file of the segments of such a file."""
    (start,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    for number in range(count):
        kind, _, offset, address, _, stored = struct.unpack_from(
            "<IIQQQQ", data, start + number * size
        )
        yield kind, offset, address, stored
