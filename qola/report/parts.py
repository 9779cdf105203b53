"""Splits the bytes of a library by purpose: host code, device code, names and so on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qola.report.elf import EXECUTED, Elf, Section

DEVICE, HOST, HOST_NAMES = "device code", "host code", "host code that builds kernel names"
ASSEMBLY, DATA, NAMES = "assembly kernels", "constants and data", "symbol table and names"
UNWIND, RELOCATIONS, DEBUG = "unwind tables", "relocations", "debug information"
REST = "headers and padding"

_BY_NAME = (
    (r"\.hip_fatbin", DEVICE),
    (r"\.eh_frame.*|\.gcc_except_table.*", UNWIND),
    (r"\.(sym|str|shstr|dynsym|dynstr)(tab)?|\.(gnu\.)?hash|\.gnu\.version.*", NAMES),
    (r"\.relr?a?\..*", RELOCATIONS),
    (r"\.z?debug_.*", DEBUG),
)

_KERNEL_NAME = re.compile(r"7GetName(B5cxx11)?Ev$")
"""End of the symbol of a CK kernel's GetName(). It builds a text that is only logged, and often has
more host code than the kernel has device code."""

_FUNCTION = 2
"""Type of a function's symbol."""


@dataclass(frozen=True)
class Part:
    """How many bytes of a library serve a purpose."""

    what: str
    bytes: int


def split_parts(library: Elf, embedded: Iterable[tuple[int, int]]) -> tuple[Part, ...]:
    """Return the parts of a library, the largest first; their bytes add up to the file's.

    Args:
        embedded: offset and size of each code object of an assembly kernel.

    Raises:
        ValueError: sections, symbols or code objects overlap.
    """
    sizes: Counter[str] = Counter()
    for section in library.sections:
        sizes[_purpose(section)] += section.stored
    sizes[REST] = len(library.data) - sum(sizes.values())
    for offset, size in embedded:
        holders = (s for s in library.sections if s.offset <= offset < s.offset + s.stored)
        sizes[next(map(_purpose, holders), REST)] -= size
        sizes[ASSEMBLY] += size
    builders = {
        symbol.address: symbol.size
        for symbol in library.symbols(".symtab")
        if symbol.type == _FUNCTION and _KERNEL_NAME.search(symbol.name)
    }
    sizes[HOST_NAMES] = sum(builders.values())
    sizes[HOST] -= sizes[HOST_NAMES]
    if min(sizes.values()) < 0:
        raise ValueError("sections, symbols or code objects that overlap")
    found = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Part(what, size) for what, size in found if size)


def _purpose(section: Section) -> str:
    named = (what for pattern, what in _BY_NAME if re.fullmatch(pattern, section.name))
    return next(named, HOST if section.flags & EXECUTED else DATA)
