"""Reads the device code of a built library, by source, and splits its bytes by purpose."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qola.common.suggestions import similar_file
from qola.report.data import Part, ReportError
from qola_base.code_object.elf import EXECUTABLE, MAGIC, Elf, Section, explain_errors
from qola_base.code_object.offload import (
    COMPRESSED_START,
    compressed_size,
    is_compressed,
    read_bundle,
    registered_bundles,
)
from qola_base.code_object.reader import CodeObject, compilers_of, parse_code_object
from qola_base.errors import Finding, visible
from qola_base.files import UnfitFileError, check_regular

_AMDGPU = 224
"""e_machine of code objects."""

#: Start of an embedded code object: an ELF file, or a compressed bundle.
_EMBEDDED = re.compile(re.escape(MAGIC) + b"|" + COMPRESSED_START)

_OWN = "a library that qola has built: a .so file"
_BUILD = "qola build MANIFEST -o DIR writes them to DIR/lib"

DEVICE, HOST = "device code", "host code"
ASSEMBLY, DATA, NAMES = "assembly kernels", "constants and data", "symbol table and names"
UNWIND, RELOCATIONS, DEBUG = "unwind tables", "relocations", "debug information"
REST = "headers and padding"

_PURPOSES = (
    (r"\.hip_fatbin", DEVICE),
    (r"\.eh_frame.*|\.gcc_except_table.*", UNWIND),
    (r"\.(sym|str|shstr|dynsym|dynstr)(tab)?|\.(gnu\.)?hash|\.gnu\.version.*", NAMES),
    (r"\.relr?a?\..*", RELOCATIONS),
    (r"\.z?debug_.*", DEBUG),
)


@dataclass(frozen=True)
class Library:
    """A built library.

    Attributes:
        units: code objects by `CodeObject.unit` of their source: a batch, or a single kernel
            instance.
        assembly: code objects of assembly kernels, embedded as data.
        parts: its bytes by purpose.
        compiler: the version that clang left in it, "" if it did not.
    """

    file: str
    size: int
    sha256: str
    units: Mapping[str, tuple[CodeObject, ...]]
    assembly: tuple[CodeObject, ...]
    parts: tuple[Part, ...]
    compiler: str

    @property
    def device_code(self) -> list[CodeObject]:
        """The code objects of all units."""
        return [code for unit in self.units.values() for code in unit]


@contextmanager
def open_library(
    path: Path,
    expected: str = _OWN,
    fix: str = _BUILD,
    raised: type[ReportError] = ReportError,
) -> Iterator[Elf]:
    """Read a library, and report damage that its readers find during the block.

    Args:
        expected, fix: of the error, for a file that is not such a library.
        raised: class of the error.

    Raises:
        ReportError: the file cannot be read, or is not a library.
    """

    def unfit(found: str) -> Finding:
        return Finding(str(path), found, expected, fix)

    try:
        check_regular(path)
        data = path.read_bytes()
    except OSError as error:
        fix = similar_file(path) or fix
        raise raised(unfit(error.strerror or str(error))) from None
    except UnfitFileError as error:
        raise raised(unfit(str(error))) from None
    with explain_errors(unfit("not a library that can be read"), raised):
        yield Elf(data)


def read_library(path: Path) -> Library:
    """Read a library that qola has built; raise as `open_library`."""
    with open_library(path) as elf:
        units = dict(_units(elf))
        assembly = list(embedded_code(elf))
        return Library(
            file=visible(path.name),
            size=len(elf.data),
            sha256=hashlib.sha256(elf.data).hexdigest(),
            units=units,
            assembly=tuple(code for _, _, code in assembly),
            parts=_parts(elf, {start: size for start, size, _ in assembly}),
            compiler=", ".join(sorted(compilers_of(elf))),
        )


def _units(elf: Elf) -> Iterator[tuple[str, tuple[CodeObject, ...]]]:
    """Yield the code objects of each source, in the order of the file."""
    for code in registered_code(elf):
        units = {one.unit for one in code}
        if len(units) != 1 or "" in units:
            raise ValueError(f"device code of {len(units - {''})} sources in one bundle")
        yield code[0].unit, code


def registered_code(elf: Elf) -> Iterator[tuple[CodeObject, ...]]:
    """Yield the code objects of each bundle that a library registers, in the order of the file."""
    fatbin = elf.section(".hip_fatbin")
    unread = fatbin.stored if fatbin else 0
    for _, bundle in registered_bundles(elf):
        code = tuple(parse_code_object(data) for _, data in read_bundle(bundle))
        compressed = is_compressed(bundle)
        unread -= compressed_size(bundle) if compressed else sum(one.size for one in code)
        if unread < 0:
            raise ValueError("code objects that overlap")
        yield code


def embedded_code(elf: Elf) -> Iterator[tuple[int, int, CodeObject]]:
    """Yield offset, bytes in the library and content of the code objects embedded as data."""
    data, fatbin, start = bytes(elf.data), elf.section(".hip_fatbin"), 0
    while found := _EMBEDDED.search(data, start + 1):
        start = found.start()
        if fatbin and fatbin.offset <= start < fatbin.offset + fatbin.stored:
            start = fatbin.offset + fatbin.stored - 1
        elif found[0] != MAGIC:
            size = compressed_size(elf.data[start:])
            for _, code in read_bundle(elf.data[start : start + size]):
                yield start, size, parse_code_object(code)
            start += size - 1
        elif struct.unpack_from("<H", data, start + 18)[0] == _AMDGPU:
            # The table of sections is the last part of a code object.
            (table,) = struct.unpack_from("<Q", data, start + 40)
            size, count = struct.unpack_from("<HH", data, start + 58)
            end = start + table + size * count
            yield start, end - start, parse_code_object(elf.data[start:end])
            start = end - 1


def _parts(elf: Elf, embedded: Mapping[int, int]) -> tuple[Part, ...]:
    """Return the bytes of a library by purpose, the largest first; they add up to the file's size.

    Args:
        embedded: bytes of each code object of an assembly kernel by its offset.

    Raises:
        ValueError: sections or code objects overlap.
    """
    sizes: Counter[str] = Counter()
    for section in elf.sections:
        sizes[_purpose(section)] += section.stored
    sizes[REST] = len(elf.data) - sum(sizes.values())
    for offset, size in embedded.items():
        holders = (s for s in elf.sections if s.offset <= offset < s.offset + s.stored)
        sizes[next(map(_purpose, holders), REST)] -= size
        sizes[ASSEMBLY] += size
    if min(sizes.values()) < 0:
        raise ValueError("sections or code objects that overlap")
    found = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Part(purpose, size) for purpose, size in found if size)


def _purpose(section: Section) -> str:
    named = (purpose for pattern, purpose in _PURPOSES if re.fullmatch(pattern, section.name))
    return next(named, HOST if section.flags & EXECUTABLE else DATA)
