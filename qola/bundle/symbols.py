"""Reads what a shared library exports."""

from __future__ import annotations

from pathlib import Path

import itanium_demangler
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from qola.errors import BundleError, Finding


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
