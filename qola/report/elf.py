"""Reads ELF files of 64 bits, as far as libraries and code objects need: no package of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

MAGIC = b"\x7fELF"
AMDGPU = 224
"""e_machine of code objects."""

FILE = 4
"""st_info's type of a symbol that names the source of those behind it."""

EXECUTED = 4
"""Flag of sections with instructions."""

_NOTE, _NO_BITS = 7, 8
_LONGEST = 1 << 16
"""The most bytes of a name: several times those of C++'s that Composable Kernel has."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_NOTE_HEADER = struct.Struct("<III")


@dataclass(frozen=True)
class Section:
    """A section; `link` is the number of the one with its names.

    Attributes:
        size: bytes in memory; `stored`, those in the file.
    """

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int

    @property
    def stored(self) -> int:
        """Bytes in the file: none for a section of zeros."""
        return 0 if self.type == _NO_BITS else self.size


@dataclass(frozen=True)
class Symbol:
    """A symbol; `type` is STT_FUNC, STT_FILE and so on."""

    name: str
    type: int
    address: int
    size: int


class Elf:
    """An ELF file in memory.

    Raises:
        ValueError: it is none, or not of 64 bits and little-endian; so too from what reads it on.
        struct.error: it ends too early.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        if bytes(data[:6]) != MAGIC + b"\x02\x01":
            raise ValueError("no ELF file of 64 bits, little-endian")
        header = _HEADER.unpack_from(data)
        self.machine: int = header[2]
        self.flags: int = header[7]
        self._table: int = header[6]
        self._count: int = header[12]
        self._names: int = header[13]

    @cached_property
    def sections(self) -> Sequence[Section]:
        """All sections."""
        rows = [
            _SECTION.unpack_from(self.data, self._table + number * _SECTION.size)
            for number in range(self._count)
        ]
        names = rows[self._names][4] if rows else 0
        return [
            Section(self._text(names + row[0]), row[1], row[2], row[3], row[4], row[5], row[6])
            for row in rows
        ]

    @property
    def size(self) -> int:
        """Bytes up to the end of the last section or of their table."""
        ends = [s.offset + s.size for s in self.sections if s.type != _NO_BITS]
        return max([self._table + self._count * _SECTION.size, *ends])

    def section(self, name: str) -> Section | None:
        """Return the section of that name, None for none."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, name: str) -> bytes:
        """Return the bytes of the section of that name, b"" for none."""
        section = self.section(name)
        return bytes(self._bytes(section)) if section and section.stored else b""

    def symbols(self, table: str) -> Iterator[Symbol]:
        """Yield the symbols of a section, none where it is not there."""
        if (section := self.section(table)) is None:
            return
        names = self.sections[section.link].offset
        for row in _SYMBOL.iter_unpack(self._bytes(section)):
            yield Symbol(self._text(names + row[0]), row[1] & 15, row[4], row[5])

    def addends(self) -> dict[int, int]:
        """Return what the loader adds to its base for a pointer, by the pointer's address."""
        section = self.section(".rela.dyn")
        rows = _RELOCATION.iter_unpack(self._bytes(section)) if section else ()
        return {address: addend for address, _, addend in rows}

    def notes(self) -> Iterator[tuple[bytes, int, memoryview]]:
        """Yield name, type and content of each note."""
        for section in self.sections:
            at = section.offset
            while section.type == _NOTE and at < section.offset + section.size:
                name, size, kind = _NOTE_HEADER.unpack_from(self.data, at)
                start = at + _NOTE_HEADER.size
                content = start + _aligned(name)
                found = bytes(self.data[start : start + name]).rstrip(b"\0")
                yield found, kind, self.data[content : content + size]
                at = content + _aligned(size)

    def at(self, address: int) -> memoryview:
        """Return what is loaded to an address, up to the end of its section."""
        for section in self.sections:
            start = section.address
            if start and section.type != _NO_BITS and start <= address < start + section.size:
                return self._bytes(section)[address - start :]
        raise ValueError(f"nothing at the address {address:#x}")

    def _bytes(self, section: Section) -> memoryview:
        end = section.offset + section.size
        if end > len(self.data):
            raise ValueError(f"section {section.name} goes beyond the end")
        return self.data[section.offset : end]

    def _text(self, start: int) -> str:
        # Names are short, but for C++'s.
        size = 256
        while (text := bytes(self.data[start : start + size])).find(b"\0") < 0:
            if start + size > len(self.data) or size > _LONGEST:
                raise ValueError("a name that does not end")
            size *= 4
        return text[: text.index(b"\0")].decode("utf-8", "replace")


def _aligned(size: int) -> int:
    return -(-size // 4) * 4
