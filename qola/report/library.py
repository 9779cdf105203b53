"""Reads the device code of a built library, by source, and splits its bytes by purpose."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.code_object.elf import EXECUTABLE, FILE, FUNCTION, MAGIC, Elf, Section, explain_errors
from qola.code_object.offload import COMPRESSED, read_bundle
from qola.code_object.reader import CodeObject, parse_code_object
from qola.errors import Finding, visible
from qola.files import UnfitFileError, check_regular
from qola.report.data import Part, ReportError

_WRAPPER = "__hip_fatbin_wrapper"
"""Symbol by which a host object registers its device code: magic, version, pointer."""

_AMDGPU = 224
"""e_machine of code objects."""

DEVICE, HOST, HOST_NAMES = "device code", "host code", "host code that builds kernel names"
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

_GET_NAME = re.compile(r"7GetName(B5cxx11)?Ev$")
"""End of the symbol of a CK kernel's GetName(). It builds a text for logs, and often has more host
code than the kernel has device code."""


@dataclass(frozen=True)
class Library:
    """A built library.

    Attributes:
        units: code objects by the name of their source: a batch, or a single kernel instance.
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


def read_library(path: Path) -> Library:
    """Read a library.

    Raises:
        ReportError: the file cannot be read, is not a library, or has no symbols.
    """
    try:
        check_regular(path)
        data = path.read_bytes()
    except OSError as error:
        raise ReportError(_unfit(path, error.strerror or str(error))) from None
    except UnfitFileError as error:
        raise ReportError(_unfit(path, str(error))) from None
    unfit = _unfit(path, "not a library that can be read")
    with explain_errors(unfit, ReportError):
        elf = Elf(data)
        units = dict(_units(path, elf))
        assembly = dict(_assembly(elf))
        return Library(
            file=visible(path.name),
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            units=units,
            assembly=tuple(assembly.values()),
            parts=_parts(elf, {start: code.size for start, code in assembly.items()}),
            compiler=_compiler(bytes(elf.content(elf.section(".comment")))),
        )


def _unfit(path: Path, found: str) -> Finding:
    return Finding(
        str(path),
        found,
        "a library that qola has built, with its symbols: a .so file",
        "qola build -m MANIFEST -o DIR makes them: DIR/lib/*.so",
    )


def _compiler(comment: bytes) -> str:
    """Return clang's version; linkers and the compiler of the C library add their own."""
    texts = sorted({text.decode("utf-8", "replace") for text in comment.split(b"\0")})
    return ", ".join(visible(text)[:200] for text in texts if "clang version" in text)


def _units(path: Path, elf: Elf) -> Iterator[tuple[str, tuple[CodeObject, ...]]]:
    """Yield name and code objects of each source, sorted by name.

    The symbol of a source's file name precedes the symbols of that source.
    """
    if elf.section(".hip_fatbin") is None:
        return
    addends = elf.addends()
    bundles: dict[str, memoryview] = {}
    name = ""
    for symbol in elf.symbols(".symtab"):
        if symbol.type == FILE:
            name = symbol.name
        elif symbol.name == _WRAPPER:
            place = symbol.address + 8
            pointer = addends.get(place) or struct.unpack_from("<Q", elf.at(place))[0]
            bundles[name.removesuffix(".cpp")] = elf.at(pointer)
    if not bundles:
        found = "a stripped library: its kernels cannot be assigned to sources without symbols"
        raise ReportError(_unfit(path, found))
    unread = len(elf.data)
    for name, bundle in sorted(bundles.items()):
        if bytes(bundle[: len(COMPRESSED)]) == COMPRESSED:
            raise ReportError(
                Finding(
                    f"{path}: {name}",
                    "compressed device code",
                    "a library with uncompressed device code",
                    "build it without --@qola//:compress",
                )
            )
        code = [data for _, data in read_bundle(bundle)]
        unread -= sum(map(len, code))
        if unread < 0:
            raise ValueError("code objects that overlap")
        yield visible(name), tuple(map(parse_code_object, code))


def _assembly(elf: Elf) -> Iterator[tuple[int, CodeObject]]:
    """Yield offset and content of the code objects that a library embeds as data."""
    data, fatbin, start = bytes(elf.data), elf.section(".hip_fatbin"), 0
    while (start := data.find(MAGIC, start + 1)) >= 0:
        if fatbin and fatbin.offset <= start < fatbin.offset + fatbin.stored:
            start = fatbin.offset + fatbin.stored - 1
        elif struct.unpack_from("<H", data, start + 18)[0] == _AMDGPU:
            # The table of sections is the last part of a code object.
            (table,) = struct.unpack_from("<Q", data, start + 40)
            size, count = struct.unpack_from("<HH", data, start + 58)
            end = start + table + size * count
            yield start, parse_code_object(elf.data[start:end])
            start = end - 1


def _parts(elf: Elf, embedded: Mapping[int, int]) -> tuple[Part, ...]:
    """Return the bytes of a library by purpose, the largest first; they add up to the file's size.

    Args:
        embedded: size of each code object of an assembly kernel by its offset.

    Raises:
        ValueError: sections, symbols or code objects overlap.
    """
    sizes: Counter[str] = Counter()
    for section in elf.sections:
        sizes[_purpose(section)] += section.stored
    sizes[REST] = len(elf.data) - sum(sizes.values())
    for offset, size in embedded.items():
        holders = (s for s in elf.sections if s.offset <= offset < s.offset + s.stored)
        sizes[next(map(_purpose, holders), REST)] -= size
        sizes[ASSEMBLY] += size
    get_name = {
        symbol.address: symbol.size
        for symbol in elf.symbols(".symtab")
        if symbol.type == FUNCTION and _GET_NAME.search(symbol.name)
    }
    sizes[HOST_NAMES] = sum(get_name.values())
    sizes[HOST] -= sizes[HOST_NAMES]
    if min(sizes.values()) < 0:
        raise ValueError("sections, symbols or code objects that overlap")
    found = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Part(purpose, size) for purpose, size in found if size)


def _purpose(section: Section) -> str:
    named = (purpose for pattern, purpose in _PURPOSES if re.fullmatch(pattern, section.name))
    return next(named, HOST if section.flags & EXECUTABLE else DATA)
