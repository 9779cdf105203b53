"""Reports faults of a program's kernels for its authors: source line, thread and allocation."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gfxemu.faults import Fault
from gfxemu.isa import ISAS
from gfxemu.source_lines import source_line
from qola_base.code_object.reader import CodeObject

#: Addresses from 0 that a null pointer with an offset has.
_NULL = 1 << 16
#: How far from an allocation an address is said to have missed it.
_NEAR = 1 << 30
_PAGE = 4096

_ACCESS = re.compile(r"(\d+) bytes at (0x[0-9a-f]+)(?: of (0x[0-9a-f]+) bytes of LDS)?")
_EARLIER = re.compile(
    r"(0x[0-9a-f]+) of the LDS, (read|written) by wave (\d+) at ([+-]0x[0-9a-f]+) "
)

Memory = Sequence[tuple[int, int]]
"""Address and size of allocations."""


@dataclass(frozen=True)
class FaultyLaunch:
    """A launch with a fault.

    Attributes:
        code: the ELF file of its kernel.
        grid, block: in workgroups and in work-items.
        allocations, freed: device memory, and memory that was device memory.
    """

    code: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    allocations: Memory = ()
    freed: Memory = ()


def describe(fault: Fault, launch: FaultyLaunch) -> str:
    """Return a fault's report: a line for the source, and one for the instruction."""
    found = CodeObject.read(launch.code)
    threads = _Threads(launch, ISAS[found.arch].lanes)
    kernel = found.kernels[fault.kernel]

    def at(pc: int) -> str:
        line = source_line(launch.code, kernel.entry + pc)
        return line or f"{pc:+#x} (no line table: compile with -gline-tables-only)"

    kind = _access(fault.instruction)
    where = f"by {demangle(fault.kernel)} at {at(fault.pc)}"
    if fault.workgroup >= 0:
        where += f", block {threads.block(fault.workgroup)}, {threads.of(fault.wave, fault.lane)}"
    access, earlier = _ACCESS.match(fault.detail), _EARLIER.match(fault.detail)
    if fault.kind == "unmapped" and access:
        size, address = int(access[1]), int(access[2], 16)
        place = describe_address(address, size, launch.allocations, launch.freed)
        text = f"invalid {kind} of {_bytes(size)} {where}, {place}"
    elif fault.kind == "out of range" and access and access[3]:
        size, address, end = int(access[1]), int(access[2], 16), int(access[3], 16)
        beyond = f"{_bytes(address - end)} behind" if address >= end else "across the end of"
        text = f"invalid {kind} of {_bytes(size)} of LDS {where}, "
        text += f"{beyond} the block's {_bytes(end)} of LDS"
    elif fault.kind == "uninitialised memory" and access:
        size, address = int(access[1]), int(access[2], 16)
        text = f"uninitialised read of {_bytes(size)} {where}, "
        text += _within(address, launch.allocations)
    elif fault.kind == "uninitialised LDS" and access:
        size, address = int(access[1]), int(access[2], 16)
        text = f"uninitialised read of {_bytes(size)} of LDS {where}, at byte {address}"
    elif fault.kind == "uninitialised register":
        text = f"uninitialised read of a register {where}: {fault.detail}"
    elif fault.kind == "race" and earlier:
        verb, wave, pc = earlier[2], int(earlier[3]), int(earlier[4], 16)
        text = (
            f"race: {kind} of LDS at byte {int(earlier[1], 16)} {where}, {verb} without a barrier "
        )
        text += f"in between by {threads.of(wave, -1)} at {at(pc)}"
    elif fault.kind == "trap":
        text = f"trap {where}: {fault.detail}"
    elif fault.kind == "unsupported":
        text = f"the kernel cannot be emulated: {fault.detail}, {where}"
    else:
        text = f"{fault.kind} {where}: {fault.detail}"
    return f"{text}\n  instruction {fault.instruction} at {fault.pc:+#x} of {fault.kernel}"


class _Threads:
    """Names blocks and threads of a launch."""

    def __init__(self, launch: FaultyLaunch, lanes: int) -> None:
        self._launch, self._lanes = launch, lanes

    def block(self, number: int) -> str:
        return _place(number, self._launch.grid)

    def of(self, wave: int, lane: int) -> str:
        """Name a thread; all threads of the wave if no lane is known."""
        first = wave * self._lanes
        if lane >= 0:
            return f"thread {_place(first + lane, self._launch.block)}"
        x, y, z = self._launch.block
        last = min(first + self._lanes, x * y * z) - 1
        return f"threads {_place(first, self._launch.block)} to {_place(last, self._launch.block)}"


def _place(number: int, sizes: tuple[int, int, int]) -> str:
    x, y, _ = sizes
    return f"({number % x},{number // x % y},{number // (x * y)})"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _access(instruction: str) -> str:
    """Return the kind of an access: atomic operation, write or read."""
    name = instruction.partition("(")[0].lower()
    if "atomic" in name or name.startswith(("ds_add", "ds_sub", "ds_min", "ds_max", "ds_cmp")):
        return "atomic access"
    return "write" if "store" in name or "write" in name else "read"


def describe_address(address: int, size: int, allocations: Memory, freed: Memory) -> str:
    """Describe where an access outside of all allocations lies."""
    if address < _NULL:
        return "at a null pointer" + (f" plus {_bytes(address)}" if address else "")
    for start, length in freed:
        if start <= address < start + length:
            return f"{_bytes(address - start)} into a freed allocation of {_bytes(length)}"
    near = _nearest(address, size, allocations)
    # The rest of an allocation's last page is mapped, too.
    if (not near or near[0] >= _PAGE) and (kind := _host_memory(address)):
        missed = f", {near[1]}" if near else ""
        return f"in {kind} that HIP did not allocate, at {address:#x}{missed}"
    return near[1] if near else f"at {address:#x}, far from all allocations"


def _within(address: int, allocations: Memory) -> str:
    """Describe an address in an allocation."""
    start, length = next(
        (start, length) for start, length in allocations if start <= address < start + length
    )
    return f"at byte {address - start} of an allocation of {_bytes(length)}"


def _nearest(address: int, size: int, allocations: Memory) -> tuple[int, str] | None:
    """Return the distance to the nearest allocation, and the place in words."""
    found: list[tuple[int, str]] = []
    for start, length in allocations:
        end, whole = start + length, f"an allocation of {_bytes(length)}"
        if address >= end:
            found.append((address - end, f"{_bytes(address - end)} behind {whole}"))
        elif address >= start:
            found.append((0, f"{_bytes(address + size - end)} of it behind {whole}"))
        else:
            found.append((start - address, f"{_bytes(start - address)} before {whole}"))
    return min((one for one in found if one[0] < _NEAR), default=None)


def _host_memory(address: int) -> str:
    """Return what memory of this process an address is in; empty for none."""
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        places, mode, *_ = line.split()
        start, end = (int(part, 16) for part in places.split("-"))
        if start <= address < end and mode.startswith("r"):
            return "host memory (stack)" if "[stack]" in line else "host memory"
    return ""


def demangle(symbol: str) -> str:
    """Return a C++ function's name with its parameters; the symbol itself for others."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (AttributeError, OSError):
        return symbol
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 2, ctypes.POINTER(ctypes.c_int)]
    status = ctypes.c_int()
    text = function(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    name = ctypes.string_at(text).decode("utf-8", "replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(text)
    return name
