"""State that the waves of a launch share: memory, LDS, scratch memory, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gfxemu.arrays import U8, U32, Array
from gfxemu.decode import Instruction
from gfxemu.faults import Fault, Faults
from gfxemu.memory import AddressMap
from gfxemu.printf import HostcallBuffer
from gfxemu.races import Races
from gfxemu.registers import LANES
from gfxemu.waits import Misuse


@dataclass
class Machine:
    """The state outside of registers.

    Attributes:
        kernel: its name, for faults.
        lds: a row of bytes for each workgroup that runs.
        lds_written: 1 for each of its bytes that was written, if accesses are checked.
        scratch: a row of bytes for each lane of each wave.
        first_group: number in the grid of the workgroup in the first row.
        group_waves: waves of a workgroup.
        entry: address of the first instruction.
        lanes: of a wave.
        lds_accesses: instructions that access the LDS, to find races.
        races: their last accesses.
        hostcalls: calls of the host, if the kernel has an argument for them.
    """

    kernel: str
    map: AddressMap
    faults: Faults
    lds_bytes: int
    scratch_bytes: int
    groups: int
    group_waves: int
    entry: int = 0
    first_group: int = 0
    checked: bool = False
    lanes: int = LANES
    lds_accesses: Sequence[Instruction] = ()
    races: Races = field(init=False)
    hostcalls: HostcallBuffer | None = None
    lds: Array = field(init=False)
    lds_written: Array = field(init=False)
    scratch: Array = field(init=False)

    def __post_init__(self) -> None:
        # Whole words, and one row for each workgroup.
        self.lds_row = (self.lds_bytes + 15) // 16 * 16
        self.lds = np.zeros(max(16, self.groups * self.lds_row), U8)
        self.lds_written = np.zeros(len(self.lds) if self.checked else 0, U8)
        self.lds_start = int(self.lds.ctypes.data)
        self.scratch_row = (self.scratch_bytes + 3) // 4 * 4
        sizes = self.groups, self.group_waves, self.lds_row
        self.races = Races(self.lds_accesses, *sizes, self.checked)
        waves = self.groups * self.group_waves
        self.scratch = np.zeros(max(4, waves * self.lanes * self.scratch_row), U8)
        self.scratch_start = int(self.scratch.ctypes.data)

    def begin(self, first_group: int, unwritten: int) -> None:
        """Start other workgroups, with LDS and scratch memory that hold the value of no write."""
        self.first_group = first_group
        self.lds.view(U32)[:] = unwritten
        self.scratch.view(U32)[:] = unwritten
        self.lds_written[:] = 0
        self.races.begin()

    def fault_at(
        self, one: Instruction, kind: str, detail: str, group: int, wave: int, lane: int = -1
    ) -> Fault:
        """Return a fault of a wave, or of its lane, in one of the workgroups that run."""
        place = self.first_group + group, wave, lane
        return Fault(kind, self.kernel, one.pc, one.text, detail, *place)

    def report_misuses(self, misuses: Sequence[Misuse], group: int, wave: int) -> None:
        """Record uses of registers without a wait, by a wave of one of the workgroups that run."""
        for misuse in misuses:
            found = misuse.instruction, "missing wait", misuse.detail
            self.faults.add(self.fault_at(*found, group, wave))
