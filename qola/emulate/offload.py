"""Finds the code objects that a library or program carries for GPUs."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from elftools.elf.elffile import ELFFile

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_TRIPLE = "amdgcn-amd-amdhsa--"
#: Bundles begin at multiples of this in the section that has them.
_ALIGNMENT = 4096


def code_objects(elf: ELFFile) -> Iterator[tuple[str, bytes]]:
    """Yield arch and bytes of each code object in an ELF file of the host."""
    section = elf.get_section_by_name(".hip_fatbin")
    data = section.data() if section else b""
    start = data.find(_BUNDLE)
    while start >= 0:
        yield from _entries(data[start:])
        start = data.find(_BUNDLE, start + len(_BUNDLE))
    if _COMPRESSED in (data[at : at + 4] for at in range(0, len(data), _ALIGNMENT)):
        raise ValueError("compressed offload bundles are not read here")


def _entries(bundle: bytes) -> Iterator[tuple[str, bytes]]:
    at = len(_BUNDLE) + 8
    (count,) = struct.unpack_from("<Q", bundle, len(_BUNDLE))
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        at += 24 + length
        if _TRIPLE in name and size:
            arch = name.partition(_TRIPLE)[2].partition(":")[0]
            yield arch, bundle[offset : offset + size]
