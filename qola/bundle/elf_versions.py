"""Reads the system libraries and symbol versions that programs and libraries of a bundle need."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import itanium_demangler
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from qola.bundle import pack_files
from qola_base.errors import BundleError, Finding

_MAGIC = b"\x7fELF"
_MACHINE = "EM_X86_64"
#: First bytes of an offload bundle, compressed or not.
_DEVICE_CODE = (b"CCOB", b"__CLANG_OFFLOAD_BUNDLE__")


@dataclass(frozen=True)
class ElfNeeds:
    """Requirements of one file.

    Attributes:
        path: the file, relative to the bundle; for a kernel in a pack, "PACK: KERNEL".
        libraries: sonames of shared libraries, sorted.
        versions: required symbol versions, such as GLIBC_2.14, with the library that defines each.
        symbols: symbols bound to each version, sorted; often none for a version that only the
            linker recorded.
        undefined: all undefined symbols, except weak ones.
    """

    path: str
    libraries: tuple[str, ...]
    versions: Mapping[str, str]
    symbols: Mapping[str, tuple[str, ...]]
    undefined: frozenset[str]


def read_needs(directory: Path, further: Mapping[str, Path] | None = None) -> tuple[ElfNeeds, ...]:
    """Return the requirements of each program and library below a directory, sorted by path.

    `further` are files outside of the directory by their path in the result.

    GPU code objects are skipped: the system's loader does not load them. Kernels in a pack with
    equal requirements are listed once.

    Raises:
        BundleError: a file begins like an ELF file or a pack, and is malformed.
    """
    found = []
    below = {p.relative_to(directory).as_posix(): p for p in directory.rglob("*") if p.is_file()}
    for name, path in sorted((below | dict(further or {})).items()):
        with path.open("rb") as file:
            start = file.read(len(pack_files.MAGIC))
            if start.startswith(_MAGIC):
                found += _read(name, file)
            elif start == pack_files.MAGIC:
                found += _needs_of_pack(path, name)
    return tuple(found)


def _needs_of_pack(path: Path, name: str) -> Iterator[ElfNeeds]:
    seen = set()
    for kernel, library in pack_files.kernels_of_pack(path, name):
        if library.startswith(_DEVICE_CODE):
            continue
        for needs in _read(f"{name}: {kernel}", io.BytesIO(library)):
            key = repr(replace(needs, path=""))
            if key not in seen:
                seen.add(key)
                yield needs


def _read(name: str, file: BinaryIO) -> list[ElfNeeds]:
    try:
        elf = ELFFile(file)
        return [_needs(name, elf)] if elf["e_machine"] == _MACHINE else []
    except ELFError as error:
        raise BundleError(Finding(name, str(error), "a program or a library")) from None


def system_floor(needs: Iterable[ElfNeeds]) -> tuple[str, ...]:
    """Return the required system libraries, as values of Requires-External in a wheel's METADATA.

    A value is a library's name and, in parentheses, the highest version of each kind:
    libstdc++.so.6 (CXXABI_1.3.9, GLIBCXX_3.4.21). Libraries among the files are omitted.
    """
    needs = tuple(needs)
    own = {one.path.rsplit("/", 1)[-1] for one in needs}
    versions: dict[str, set[str]] = {}
    for one in needs:
        for library in set(one.libraries) - own:
            versions.setdefault(library, set())
        for version, library in one.versions.items():
            if library not in own:
                versions.setdefault(library, set()).add(version)
    return tuple(
        f"{library} ({', '.join(top)})" if (top := highest(names)) else library
        for library, names in sorted(versions.items())
    )


def highest(versions: Iterable[str]) -> tuple[str, ...]:
    """Return the highest version of each kind, such as GLIBC, and all without a number, sorted."""
    numbered: dict[str, tuple[int, ...]] = {}
    others = set()
    for version in versions:
        kind, _, number = version.partition("_")
        parts = number.split(".")
        if all(part.isdecimal() for part in parts):
            numbered[kind] = max(numbered.get(kind, ()), tuple(map(int, parts)))
        else:
            others.add(version)
    return tuple(sorted([*others, *(f"{k}_{'.'.join(map(str, n))}" for k, n in numbered.items())]))


def _needs(name: str, elf: ELFFile) -> ElfNeeds:
    dynamic = elf.get_section_by_name(".dynamic")
    needed: list[str] = []
    if isinstance(dynamic, DynamicSection):
        # pyelftools sets this attribute without a declaration.
        tags = dynamic.iter_tags("DT_NEEDED")
        needed = [str(tag.needed) for tag in tags]  # type: ignore[attr-defined]
    required = elf.get_section_by_name(".gnu.version_r")
    versions: dict[str, str] = {}
    if isinstance(required, GNUVerNeedSection):
        for library, entries in required.iter_versions():
            versions.update({str(entry.name): str(library.name) for entry in entries})
    undefined = set()
    symbols: dict[str, set[str]] = {}
    table = elf.get_section_by_name(".dynsym")
    numbers = elf.get_section_by_name(".gnu.version")
    if isinstance(table, SymbolTableSection):
        for index, symbol in enumerate(table.iter_symbols()):
            if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name:
                continue
            if symbol["st_info"]["bind"] != "STB_WEAK":
                undefined.add(symbol.name)
            if isinstance(numbers, GNUVerSymSection) and isinstance(required, GNUVerNeedSection):
                number = numbers.get_symbol(index)["ndx"]
                # 0 and 1 are returned as names (VER_NDX_LOCAL, VER_NDX_GLOBAL): no version.
                if isinstance(number, int) and (entry := required.get_version(number)):
                    symbols.setdefault(str(entry[1].name), set()).add(symbol.name)
    return ElfNeeds(
        path=name,
        libraries=tuple(sorted(needed)),
        versions=dict(sorted(versions.items())),
        symbols={version: tuple(sorted(names)) for version, names in sorted(symbols.items())},
        undefined=frozenset(undefined),
    )


def exported(library: Path) -> tuple[str, ...]:
    """Return the demangled dynamic symbols of a library; raise BundleError if it has none."""
    try:
        with library.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection):
                raise ELFError("no section .dynsym")
            names = {
                symbol.name
                for symbol in table.iter_symbols()
                if symbol.entry["st_shndx"] != "SHN_UNDEF" and symbol.name
            }
    except ELFError as error:
        raise BundleError(Finding(library.name, str(error), "a shared library")) from None
    return tuple(sorted(map(demangle, names)))


def demangle(name: str) -> str:
    """Return the C++ name of a mangled symbol; other symbols unchanged."""
    if not name.startswith("_Z"):
        return name
    # The demangler returns None for manglings that it does not know.
    return str(itanium_demangler.parse(name) or name)
