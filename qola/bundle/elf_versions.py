"""Reads what programs and libraries of a bundle need of the system they are loaded on."""

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
from qola.errors import BundleError, Finding

_MAGIC = b"\x7fELF"
_MACHINE = "EM_X86_64"
#: First bytes of a compressed offload bundle.
_COMPRESSED = b"CCOB"


@dataclass(frozen=True)
class ElfNeeds:
    """The needs of one file, named relative to the bundle.

    Attributes:
        path: the file; of a kernel in a pack, the pack and the kernel.
        libraries: names of shared libraries, as the loader looks for them, sorted.
        versions: by version, such as GLIBC_2.14: the library that has to have it.
        symbols: by version: the symbols that are bound to it, sorted; often none for a version
            that only the linker recorded.
        undefined: all symbols that others have to define, weak ones left out.
    """

    path: str
    libraries: tuple[str, ...]
    versions: Mapping[str, str]
    symbols: Mapping[str, tuple[str, ...]]
    undefined: frozenset[str]


def read_needs(directory: Path) -> tuple[ElfNeeds, ...]:
    """Return what each program and library below a directory needs, sorted by path.

    Code objects of GPUs are ELF files, too, but no system loader reads them: they are left out, as
    are compressed ones. Of the kernels in a pack, which need the same, one speaks for all that do.

    Raises:
        BundleError: a file that begins as an ELF file or a pack does and is none.
    """
    found = []
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = path.relative_to(directory).as_posix()
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
        if library.startswith(_COMPRESSED):
            continue
        for one in _read(f"{name}: {kernel}", io.BytesIO(library)):
            what = repr(replace(one, path=""))
            if what not in seen:
                seen.add(what)
                yield one


def _read(name: str, file: BinaryIO) -> list[ElfNeeds]:
    try:
        elf = ELFFile(file)
        return [_needs(name, elf)] if elf["e_machine"] == _MACHINE else []
    except ELFError as error:
        raise BundleError(Finding(name, str(error), "a program or a library")) from None


def system_floor(needs: Iterable[ElfNeeds]) -> tuple[str, ...]:
    """Return the libraries that a system has to bring, each with the versions it has to reach.

    A line is a value of Requires-External in a wheel's METADATA: a library's name and, in
    parentheses, the highest version of each kind: libstdc++.so.6 (CXXABI_1.3.9, GLIBCXX_3.4.21).
    Libraries that the files bring themselves are left out.
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
        # pyelftools sets this attribute without declaring it.
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
                # 0 and 1 come as names (VER_NDX_LOCAL, VER_NDX_GLOBAL): without a version.
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
    """Return the defined dynamic symbols of a library, demangled and sorted.

    Raises:
        BundleError: no ELF file, or one without dynamic symbols.
    """
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
    """Return a symbol as C++ source names it; a name that is not mangled as it is."""
    if not name.startswith("_Z"):
        return name
    # None for manglings the demangler does not know: then the symbol itself is the truth.
    return str(itanium_demangler.parse(name) or name)
