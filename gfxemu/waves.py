"""The registers of waves that stand at one place and go on together.

Registers have the numbers of a 9-bit source operand, and two ranges more:

======== ==========================================================
0        SGPRs; 106 VCC, 124 M0, 125 NULL of RDNA, 126 EXEC
128      constants of the ISA
256      VGPRs
512      accumulation VGPRs
768      constants of the program: literals, and floats of 16 bits
======== ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gfxemu.arrays import F32, I32, I64, U8, U32, U64, Array

if TYPE_CHECKING:
    from gfxemu.machine import Machine

LANES = 64
"""Lanes of a wave of CDNA."""
SGPRS = 128
VCC, M0, NULL, EXEC = 106, 124, 125, 126
#: The first generic addresses of the LDS and of a lane's scratch memory, which no allocation has;
#: the operands with them.
APERTURE, PRIVATE_APERTURE = 1 << 48, 2 << 48
APERTURES = {235: APERTURE, 237: PRIVATE_APERTURE}
CONSTANTS, VGPRS, AGPRS, LITERALS = 128, 256, 512, 768

_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532)


def constant(number: int, kind: str = "u32") -> int | None:
    """The value of one of the ISA's constants as the bits of a type, None where it is not one."""
    if 128 <= number <= 192:
        return number - 128
    if 193 <= number <= 208:
        return (192 - number) & (2**64 - 1 if kind in ("u64", "i64", "f64") else 2**32 - 1)
    if 240 <= number <= 248:
        value = _FLOATS[number - 240]
        # For 32-bit integers, a float constant has the bits of an f32.
        float_type, bits_type = {
            "f16": (np.float16, np.uint16),
            "f64": (np.float64, np.uint64),
        }.get(kind, (np.float32, np.uint32))
        return int(np.array(value, float_type).view(bits_type))
    return None


@dataclass(frozen=True)
class Layout:
    """Sizes of a wave's registers, and the constants of its program."""

    vgprs: int
    first_agpr: int
    literals: Sequence[int]
    lanes: int = LANES


class Waves:
    """Registers of some waves: one array each, with a row for a wave.

    Attributes:
        v: vector registers, accumulation registers behind the others; (registers, waves, lanes).
        s: scalar registers; (waves, 128).
        scc: the condition code; (waves, 1).
        groups: the workgroup of each wave, by its row in the LDS.
        numbers: the wave's number in its workgroup.
        lds_rows: address of the row; (waves, 1).
        u, i, f: each register and constant as u32, i32, f32; (waves, lanes), (waves, 1), (1, 1).
        q: pairs of scalar registers as u64, by the even number.
        exec: lanes that are active; (waves, lanes).
        full: all of them are.
        pc: offset of the next instruction.
        machine: the state that waves share.
        known: which registers were written, as `v` and `s`; empty if reads are not checked.
        loads: by wave, the state of its outstanding loads, a number of `Waits`.
    """

    def __init__(
        self,
        layout: Layout,
        v: Array,
        s: Array,
        scc: Array,
        groups: Array,
        numbers: Array,
        pc: int,
        machine: Machine,
        known: tuple[Array, ...] = (),
        loads: Array | None = None,
    ) -> None:
        self.layout = layout
        self.loads = np.zeros(len(groups), I64) if loads is None else loads
        self.known = known
        self.machine = machine
        self.v, self.s, self.scc = v, s, scc
        self.groups, self.numbers = groups, numbers
        self.count = len(groups)
        self.lds_rows = (groups * machine.lds_row + machine.lds_start).view(U64)[:, None]
        self.pc = pc
        self.u = self._views(U32)
        self.i = self._views(I32)
        self.f = self._views(F32)
        pairs = s.view(U64)
        pairs_of: list[Any] = [None] * SGPRS
        for number in range(0, SGPRS, 2):
            pairs_of[number] = pairs[:, number // 2 : number // 2 + 1]
        self.q: list[Array] = pairs_of
        self.update_exec()

    def _views(self, kind: type[np.generic]) -> list[Array]:
        """Return the registers by number, as arrays of one type."""
        s, v = self.s.view(kind), self.v.view(kind)
        views: list[Any] = [None] * (LITERALS + len(self.layout.literals))
        views[:SGPRS] = [s[:, number : number + 1] for number in range(SGPRS)]
        # One file: a VGPR's number may reach beyond where accumulation registers begin.
        plain, others = list(v[: AGPRS - VGPRS]), list(v[self.layout.first_agpr :])[:256]
        views[VGPRS : VGPRS + len(plain)] = plain
        views[AGPRS : AGPRS + len(others)] = others
        for number in range(CONSTANTS, VGPRS):
            if (bits := constant(number)) is not None:
                views[number] = np.array([[bits]], U32).view(kind)
        for number, bits in enumerate(self.layout.literals, LITERALS):
            views[number] = np.array([[bits]], U32).view(kind)
        return views

    def update_exec(self) -> None:
        """Bring the lanes that are active in line with the register."""
        self.exec = self.lanes(EXEC)
        self.full = bool(self.exec.all())

    def lanes(self, number: int) -> Array:
        """A mask in scalar registers, two for 64 lanes, as booleans."""
        bits = np.ascontiguousarray(self.s[:, number : number + self.layout.lanes // 32])
        return np.unpackbits(bits.view(U8), axis=1, bitorder="little").view(bool)

    def put_lanes(self, number: int, lanes: Array) -> None:
        """Write booleans, one a lane, to scalar registers."""
        octets = np.packbits(lanes, axis=1, bitorder="little")
        self.s[:, number : number + self.layout.lanes // 32] = octets.view(U32)

    def mask(self, number: int) -> Array:
        """A mask in scalar registers, as numbers."""
        return self.q[number] if self.layout.lanes == LANES else self.u[number]

    def words(self, number: int, count: int) -> Array:
        """Vector registers that follow each other: (count, waves, lanes)."""
        first = self.index(number)
        return self.v[first : first + count]

    def put(self, number: int, values: Array) -> None:
        """Write the active lanes of vector registers that follow each other."""
        target = self.words(number, len(values))
        if self.full:
            np.copyto(target, values)
        else:
            np.copyto(target, values, where=self.exec)

    def index(self, number: int) -> int:
        """Return the index of a vector register in `v`."""
        return number - VGPRS if number < AGPRS else number - AGPRS + self.layout.first_agpr

    def take(self, rows: Array) -> Waves:
        """Some of the waves, with registers of their own."""
        v, s = np.ascontiguousarray(self.v[:, rows]), self.s[rows]
        state = self.scc[rows], self.groups[rows], self.numbers[rows]
        known = self.known and (self.known[0][:, rows], self.known[1][rows])
        return Waves(self.layout, v, s, *state, self.pc, self.machine, known, self.loads[rows])


Step = Callable[[Waves], None]
"""Runs an instruction on waves."""


def joined(parts: Sequence[Waves]) -> Waves:
    """Waves that have come to one place."""
    first = parts[0]
    v = np.concatenate([part.v for part in parts], axis=1)
    s, scc, groups, numbers, loads = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("s", "scc", "groups", "numbers", "loads")
    )
    known = first.known and (
        np.concatenate([part.known[0] for part in parts], axis=1),
        np.concatenate([part.known[1] for part in parts]),
    )
    state = s, scc, groups, numbers, first.pc, first.machine, known, loads
    return Waves(first.layout, v, *state)
