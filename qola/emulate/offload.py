"""Finds the code objects that a library or program carries for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from elftools.elf.elffile import ELFFile

from qola.offload import COMPRESSED, MAGIC, entries

_TRIPLE = "amdgcn-amd-amdhsa--"
#: Bundles begin at multiples of this in the section that has them.
_ALIGNMENT = 4096


def code_objects(elf: ELFFile) -> Iterator[tuple[str, bytes]]:
    """Yield arch and bytes of each code object in an ELF file of the host."""
    section = elf.get_section_by_name(".hip_fatbin")
    data = section.data() if section else b""
    start = data.find(MAGIC)
    while start >= 0:
        for target, code in entries(memoryview(data)[start:]):
            if _TRIPLE in target and code:
                yield target.partition(_TRIPLE)[2].partition(":")[0], bytes(code)
        start = data.find(MAGIC, start + len(MAGIC))
    if COMPRESSED in (data[at : at + 4] for at in range(0, len(data), _ALIGNMENT)):
        raise ValueError("compressed offload bundles are not read here")
