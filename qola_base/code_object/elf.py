"""Reads the sections, symbols and notes of ELF files, with bounds on all sizes and offsets.

pyelftools parses headers and notes. Its sections and symbols are not used: a damaged file can make
them decompress, or read a table once for each of 65,535 sections, and a symbol takes 40 us.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile
from elftools.elf.notes import iter_notes

from qola_base.errors import Finding, QolaError

MAGIC = b"\x7fELF"

EXECUTABLE = 4
"""Flag of sections with instructions."""

NEEDED, RPATH, RUNPATH = 1, 15, 29
"""Tags of the dynamic section: a library to load, and directories to search, in two forms."""

_HEADERS = {"e_phentsize": 56, "e_shentsize": 64}
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_DYNAMIC = struct.Struct("<qQ")
#: Longest symbol name in bytes: several times the longest C++ name in Composable Kernel.
_LONGEST_NAME = 1 << 18
#: Largest size of a code object in memory: AITER's largest have a few MiB.
_LARGEST_IMAGE = 1 << 28


@contextmanager
def explain_errors(finding: Finding, error: type[QolaError] = QolaError) -> Iterator[None]:
    """Raise a finding for each exception that a damaged file can cause in its readers.

    The message of the exception is appended to `finding.found`.
    """
    try:
        yield
    except (
        *(ArithmeticError, AttributeError, ELFError, LookupError, MemoryError),
        *(RecursionError, TypeError, ValueError, struct.error),
    ) as cause:
        raise error(replace(finding, found=f"{finding.found}: {cause}")) from None


@dataclass(frozen=True)
class Section:
    """A section of an ELF file.

    Attributes:
        size: bytes in memory.
        link: index of the section with the names of a symbol table.
    """

    name: str
    type: str | int
    flags: int
    address: int
    offset: int
    size: int
    link: int

    @property
    def stored(self) -> int:
        """Bytes in the file: 0 for a section of zeros."""
        return 0 if self.type == "SHT_NOBITS" else self.size


@dataclass(frozen=True)
class Symbol:
    """A symbol and the bytes that it names."""

    name: str
    address: int
    size: int


class Elf:
    """A little-endian ELF file of 64 bits.

    The methods raise many exceptions for a damaged file: use them within `explain_errors`.

    Attributes:
        machine: e_machine by its name in elf.h, or its number.
        flags: e_flags.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        if bytes(data[:6]) != MAGIC + b"\x02\x01":
            raise ValueError("not a little-endian ELF file of 64 bits")
        self._file = ELFFile(io.BytesIO(data))
        self.machine: str | int = self._file["e_machine"]
        self.flags: int = self._file["e_flags"]

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections."""
        # The first header has the numbers that e_shnum and e_shstrndx are too small for.
        count = self._file.num_sections()
        headers = self._headers("Elf_Shdr", "e_shoff", count, "e_shentsize")
        names = headers[self._file.get_shstrndx()]["sh_offset"] if headers else 0
        keys = ("sh_type", "sh_flags", "sh_addr", "sh_offset", "sh_size", "sh_link")
        return tuple(
            Section(self._name(names + header["sh_name"]), *(header[key] for key in keys))
            for header in headers
        )

    def section(self, name: str) -> Section | None:
        """Return the first section with the name."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, section: Section | None) -> memoryview:
        """Return the bytes of a section in the file."""
        if section is None or not section.stored:
            return self.data[:0]
        end = section.offset + section.size
        if end > len(self.data):
            raise ValueError(f"section {section.name} goes beyond the end")
        return self.data[section.offset : end]

    def symbols(self, table: str) -> Iterator[Symbol]:
        """Yield the symbols of a section, none if the section does not exist."""
        section = self.section(table)
        names = self.sections[section.link].offset if section else 0
        for name, _, _, _, address, size in _SYMBOL.iter_unpack(self.content(section)):
            yield Symbol(self._name(names + name), address, size)

    def addends(self) -> dict[int, int]:
        """Return the relative address that the loader writes to each pointer, by its address."""
        rows = _RELOCATION.iter_unpack(self.content(self.section(".rela.dyn")))
        return {address: addend for address, _, addend in rows}

    def dynamic_texts(self, tag: int) -> list[str]:
        """Return the texts of .dynamic's entries with a tag, such as NEEDED, in their order."""
        section = self.section(".dynamic")
        names = self.sections[section.link].offset if section else 0
        rows = _DYNAMIC.iter_unpack(self.content(section))
        return [self._name(names + value) for found, value in rows if found == tag]

    def note(self, name: str, number: object) -> bytes | None:
        """Return the content of the first note with a name and a type."""
        for section in self.sections:
            if section.type == "SHT_NOTE":
                end = len(self.content(section))
                for note in iter_notes(self._file, section.offset, end):
                    if note["n_name"] == name and note["n_type"] == number:
                        return bytes(note["n_descdata"])
        return None

    def at(self, address: int) -> memoryview:
        """Return the bytes that are loaded to an address, up to the end of their section."""
        for section in self.sections:
            start = section.address
            if start and section.stored and start <= address < start + section.size:
                return self.content(section)[address - start :]
        raise ValueError(f"nothing is loaded to the address {address:#x}")

    def image(self) -> bytes:
        """Return the loaded segments, from address 0."""
        headers = self._headers("Elf_Phdr", "e_phoff", self._file["e_phnum"], "e_phentsize")
        segments = [header for header in headers if header["p_type"] == "PT_LOAD"]
        size = max((s["p_vaddr"] + max(s["p_memsz"], s["p_filesz"]) for s in segments), default=0)
        if size > _LARGEST_IMAGE:
            raise ValueError(f"segments of {size:,} bytes")
        image = bytearray(size)
        for segment in segments:
            start, offset = segment["p_vaddr"], segment["p_offset"]
            content = self.data[offset : offset + segment["p_filesz"]]
            image[start : start + len(content)] = content
        return bytes(image)

    def _headers(self, structure: str, offset: str, count: int, size: str) -> list[Any]:
        """Return the headers of all sections or segments."""
        if count and self._file[size] != _HEADERS[size]:
            raise ValueError(f"headers of {self._file[size]} bytes")
        if self._file[offset] + count * _HEADERS[size] > len(self.data):
            raise ValueError(f"{count:,} headers go beyond the end")
        parser = getattr(self._file.structs, structure)
        starts = (self._file[offset] + n * _HEADERS[size] for n in range(count))
        return [struct_parse(parser, self._file.stream, start) for start in starts]

    def _name(self, start: int) -> str:
        size = 256
        while (text := bytes(self.data[start : start + size])).find(b"\0") < 0:
            if start + size > len(self.data) or size > _LONGEST_NAME:
                raise ValueError("a name without an end")
            size *= 4
        return text[: text.index(b"\0")].decode("utf-8", "replace")
