"""Finds accesses of the LDS that nothing orders.

- A wave reads bytes, or writes others to them, that another wave of the workgroup wrote, without a
  barrier in between: a race. A write is before a barrier if its wave waited for it there: the LDS
  may execute operations of two waves in any order (memory model of gfx942 in LLVM's AMDGPUUsage).
- A wave reads or writes bytes before a wait covers its own load from memory to them: a missing
  wait. Its other operations of the LDS are in order.
- If accesses are checked: a wave writes bytes that another wave read since the last barrier.

A write that changes no byte is no access: waves may write, or load, the same values in any order.
An atomic operation counts as a read, because two of them have an order.

Each granule of the LDS has the mark of its last write. engine.c makes and compares them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from gfxemu.arrays import I64, U64
from gfxemu.decode import Instruction
from gfxemu.waits import loads_to_lds

#: Queues, in which accesses complete in order.
QUEUES = {"vm": 0, "lds": 1}
#: A mark has the count of the access, the number of the instruction, and twice the number of the
#: wave plus the queue.
_NUMBER, _WAVE = 32, 48
_MOST_NUMBERS = (1 << _WAVE - _NUMBER) - 1
#: Waves of a workgroup, as in engine.c: those of 1024 work-items.
_MOST_WAVES = 16
#: A granule has at most 8 bytes: larger accesses may begin at any multiple of 8.
_LARGEST = 3
#: The size of an access: bits of the LDS, or words of memory.
_SIZE = re.compile(r"DS_.*?_[BUIF](\d+)|.*_DWORD(?:X(\d))?$")
#: Operations of the LDS that do not access it.
_ELSEWHERE = ("DS_BPERMUTE", "DS_PERMUTE", "DS_SWIZZLE", "DS_NOP")


def size_of(one: Instruction) -> int:
    """Return the bytes that a lane reads or writes at each address; 0 if it is not in the LDS."""
    found = _SIZE.match(one.name)
    if not found or one.name.startswith(_ELSEWHERE):
        return 0
    if one.form == "DS":
        return int(found[1]) // 8
    return 4 * int(found[2] or 1) if loads_to_lds(one) else 0


class Races:
    """Accesses of the LDS by the waves that run.

    Attributes:
        shift: log2 of the bytes of a granule: the smallest access of the kernel.
        granules: of a workgroup; 0 if the kernel has no such instructions.
        owners: marks of the last writes; (workgroups, granules).
        readers: marks of the last reads by each wave, if accesses are checked; (waves, granules).
        orders: by wave: issued, done, issued and done at the last barrier; count, first granule and
            end of the last marks. Each has a number for each queue.
    """

    def __init__(
        self,
        accesses: Sequence[Instruction],
        groups: int,
        group_waves: int,
        lds_bytes: int,
        checked: bool,
    ) -> None:
        """Make marks for the instructions of a kernel for which `size_of` is not 0."""
        fits = len(accesses) <= _MOST_NUMBERS and group_waves <= _MOST_WAVES
        some = accesses if fits else ()
        self._accesses = tuple(some)
        powers = [(size & -size).bit_length() - 1 for size in map(size_of, some)]
        self.shift = min([_LARGEST, *powers])
        self.granules = -(-lds_bytes >> self.shift) if some else 0
        self.owners = np.zeros((groups, self.granules), U64)
        waves = groups * group_waves
        self.orders = np.zeros((waves, 7, 2), I64)
        self.readers = np.zeros((waves if checked else 0, self.granules), U64)

    def begin(self) -> None:
        """Start other workgroups."""
        self.owners[:], self.orders[:], self.readers[:] = 0, 0, 0

    def describe(self, address: int, source: int, race: bool) -> str:
        """Describe the earlier access of some bytes, by the upper half of its mark."""
        one = self._accesses[(source & _MOST_NUMBERS) - 1]
        if not race:
            return f"{address:#x} of the LDS, loaded by {one.pc:+#x} {one}"
        verb = "read" if "WRITE" not in one.name and one.form == "DS" else "written"
        wave = source >> (_WAVE - _NUMBER) >> 1
        return f"{address:#x} of the LDS, {verb} by wave {wave} at {one.pc:+#x} {one}"
