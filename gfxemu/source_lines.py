"""Finds the source line of an instruction in the line table of a code object."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.descriptions import describe_form_class
from elftools.elf.elffile import ELFFile

#: Headers of HIP and clang, whose functions are inlined at a line of the program.
_TOOLCHAIN = re.compile(r"(?:^|/)(?:rocm[^/]*/include|resource/include|clang/[^/]*/include)/")


def source_line(code: bytes, address: int) -> str:
    """Return the place of an address as `file:line`; empty if the line table does not have it.

    The place of a function of HIP's or clang's headers is where it was inlined.
    """
    try:
        places = _Places.read(code)
    except (DWARFError, ELFError, KeyError, IndexError, ValueError):
        # A report without a line is better than none.
        return ""
    found = [place for place in places.at(address) if place]
    return next((place for place in found if not _TOOLCHAIN.search(place)), (*found, "")[0])


class _Places:
    """The line table of a code object, and where functions are inlined."""

    def __init__(self, code: bytes) -> None:
        rows: list[tuple[int, str]] = []
        calls: list[tuple[int, int, str]] = []
        elf = ELFFile(BytesIO(code))
        dwarf: Any = elf.get_dwarf_info() if elf.has_dwarf_info() else None
        for unit in dwarf.iter_CUs() if dwarf else ():
            program = dwarf.line_program_for_CU(unit)
            if program is not None:
                rows += _rows(program)
                calls += _calls(dwarf, unit, program)
        self._rows = sorted(rows)
        self._calls = calls

    @staticmethod
    @lru_cache(maxsize=4)
    def read(code: bytes) -> _Places:
        return _Places(code)

    def at(self, address: int) -> Iterator[str]:
        """Yield the place of an address, then those where its functions are inlined."""
        row = bisect_right(self._rows, (address, "~")) - 1
        if row >= 0:
            yield self._rows[row][1]
        around = [
            (end - start, place) for start, end, place in self._calls if start <= address < end
        ]
        yield from (place for _, place in sorted(around, key=lambda call: call[0]))


def _rows(program: Any) -> list[tuple[int, str]]:
    """Return addresses with the place of the instructions from there on."""
    rows: dict[int, str] = {}
    last = ""
    for state in (entry.state for entry in program.get_entries() if entry.state is not None):
        # Line 0 stands for code of no line.
        if state.end_sequence:
            last = ""
        elif state.line:
            last = f"{_file(program, state.file)}:{state.line}"
        # Of several rows for an address, the last one holds.
        rows[state.address] = last
    return list(rows.items())


def _calls(dwarf: Any, unit: Any, program: Any) -> Iterator[tuple[int, int, str]]:
    """Yield begin and end of inlined functions, and where they are called."""
    for die in unit.iter_DIEs():
        if die.tag != "DW_TAG_inlined_subroutine" or "DW_AT_call_line" not in die.attributes:
            continue
        values = die.attributes
        file, line = values["DW_AT_call_file"].value, values["DW_AT_call_line"].value
        place = f"{_file(program, file)}:{line}"
        if "DW_AT_low_pc" in values:
            low, high = values["DW_AT_low_pc"].value, values["DW_AT_high_pc"]
            is_size = describe_form_class(high.form) == "constant"
            yield low, low + high.value if is_size else high.value, place
        elif "DW_AT_ranges" in values:
            base = unit.get_top_DIE().attributes["DW_AT_low_pc"].value
            offset = values["DW_AT_ranges"].value
            for part in dwarf.range_lists().get_range_list_at_offset(offset, unit):
                if hasattr(part, "base_address"):
                    base = part.base_address
                    continue
                shift = 0 if part.is_absolute else base
                yield shift + part.begin_offset, shift + part.end_offset, place


def _file(program: Any, number: int) -> str:
    """Return the path of a file, relative to the directory of the compile if it is below it."""
    header = program.header
    before_5 = header.version < 5
    entry = header.file_entry[number - before_5]
    folder, folders = entry.dir_index - before_5, header.include_directory
    path = (folders[folder] if 0 <= folder < len(folders) else b".") + b"/" + entry.name
    return path.decode("utf-8", "replace").removeprefix("./")
