"""Operands of an instruction: functions that read them from waves, and that write results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gfxemu.arrays import U16, U32, U64, Array, ArrayFunction
from gfxemu.decode import Instruction
from gfxemu.table import TYPES
from gfxemu.waves import (
    APERTURES,
    EXEC,
    LANES,
    LITERALS,
    NULL,
    SGPRS,
    VCC,
    VGPRS,
    Step,
    Waves,
    constant,
)

#: Reads an operand: an array of a value a lane, a wave, or for all.
Read = Callable[[Waves], Array]
#: Writes a result to the lanes that are active.
Write = Callable[[Waves, Any], None]

#: DPP controls beyond rows of 16 lanes, which RDNA does not have.
_WHOLE_WAVE = (0x130, 0x134, 0x138, 0x13C, 0x142, 0x143)
VCCZ, EXECZ, SCC, LITERAL, LDS_DIRECT, SDWA, DPP = 251, 252, 253, 255, 254, 249, 250
#: In the field of the first source: the order of eight lanes follows; with the second mark, lanes
#: that are off are read, too.
DPP8, DPP8_FI = 233, 234
#: All marks of a register that the word behind the instruction names.
ELSEWHERE = (SDWA, DPP, DPP8, DPP8_FI)


class UnsupportedError(Exception):
    """An instruction that cannot be emulated, and why."""


@dataclass
class Literals:
    """Constants of a program that are not among the ISA's."""

    bits: list[int] = field(default_factory=list)

    def number(self, bits: int) -> int:
        """The register number of a constant of 32 bits."""
        if bits not in self.bits:
            self.bits.append(bits)
        return LITERALS + self.bits.index(bits)


def number_of(one: Instruction, name: str, kind: str, literals: Literals) -> int:
    """The register number of an operand of up to 32 bits."""
    number = one.fields[name]
    # With SDWA a bit of its own says that a register is a scalar one.
    if number >= VGPRS and one[{"vsrc0": "s0", "vsrc1": "s1"}.get(name, "")]:
        return number - VGPRS
    if number == LITERAL:
        if one.literal is None:
            raise UnsupportedError("a literal that is not there")
        return literals.number(one.literal & 0xFFFFFFFF)
    if 240 <= number <= 248 and kind == "f16":
        return literals.number(constant(number, kind) or 0)
    if SGPRS <= number < VGPRS and constant(number) is None:
        raise UnsupportedError(f"source operand {number}")
    return number


def typed(value: Array, kind: str) -> Array:
    """The bits of u32 values as another type of 32 or 16 bits."""
    target = TYPES[kind]
    if np.dtype(target).itemsize == 2:
        return value.astype(U16).view(target)
    return value.view(target)


def listed(number: int, kind: str) -> Read:
    """Return a function that reads a register as a type of 32 bits, as most operands are."""
    if kind == "f32":
        return lambda w: w.f[number]
    if kind == "i32":
        return lambda w: w.i[number]
    return lambda w: w.u[number]


def wide_literal(one: Instruction, kind: str) -> int:
    """Return the 64 bits of an instruction's literal: the upper half of a float, else the lower."""
    bits = (one.literal or 0) & 0xFFFFFFFF
    if kind == "f64":
        return bits << 32
    return bits | 0xFFFFFFFF << 32 if kind == "i64" and bits >> 31 else bits


def wide(one: Instruction, name: str, kind: str) -> Read:
    """Return a function that reads an operand of 64 bits."""
    number = one.fields[name]
    target = TYPES[kind]
    if number == LITERAL:
        fixed = np.array([[wide_literal(one, kind)]], U64).view(target)
        return lambda _: fixed
    if number == NULL and one.isa.is_rdna:
        return lambda w: np.zeros((w.count, 1), target)
    if number < SGPRS:
        return lambda w: w.q[number].view(target)
    if number < VGPRS:
        value = APERTURES.get(number, constant(number, kind))
        if value is None:
            raise UnsupportedError(f"source operand {number}")
        # Floats in an operand of integers have their bits in the lower half.
        fixed = np.array([[value]], U64).view(target)
        return lambda _: fixed

    def read(w: Waves) -> Array:
        pair = w.words(number, 2)
        return (pair[0].astype(U64) | pair[1].astype(U64) << U64(32)).view(target)

    return read


def special(number: int) -> Read | None:
    """Return a function that reads a flag, None for an operand of another kind."""
    if number == SCC:
        return lambda w: w.scc.astype(U32)
    if number == VCCZ:
        return lambda w: (w.mask(VCC) == 0).astype(U32)
    if number == EXECZ:
        return lambda w: (w.mask(EXEC) == 0).astype(U32)
    return None


def selected(read: Read, select: int, signed: bool) -> Read:
    """A byte or word of an operand, as SDWA picks it."""
    if select == 6:
        return read
    if select > 6:
        raise UnsupportedError("a part of a register that SDWA does not have")
    width, place = (8, select) if select < 4 else (16, select - 4)
    distance, above = U32(width * place), U32(32 - width)

    def run(w: Waves) -> Array:
        moved = read(w) >> distance << above
        if signed:
            return (moved.view(np.int32) >> above.view(np.int32)).view(U32)
        return moved >> above

    return run


@dataclass(frozen=True)
class LanePattern:
    """The lanes that an instruction with DPP reads its first source from.

    Attributes:
        source: for each lane, the one that it reads from.
        valid: whether there is one; (lanes).
        enabled: lanes that the instruction writes at all; (lanes).
        zeros: a lane without a source reads 0; otherwise, it keeps its result.
        inactive: lanes that are off are read, too.
    """

    source: Array
    valid: Array
    enabled: Array
    zeros: bool
    inactive: bool


def lane_pattern(one: Instruction) -> LanePattern | None:
    """Return the order of lanes of an instruction with DPP, None for others."""
    lanes = one.isa.lanes
    lane = np.arange(lanes)
    every = np.ones(lanes, bool)
    if one.form.endswith("_DPP8"):
        chosen = np.array([one[f"lane_sel_{place}"] for place in range(8)])
        return LanePattern(
            lane // 8 * 8 + chosen[lane % 8], every, every, True, one["src0"] == DPP8_FI
        )
    if not one.form.endswith("_DPP16"):
        return None
    source, valid = lane_source(one["dpp"], lanes)
    enabled = (one["row_mask"] >> (lane // 16) & 1) & (one["bank_mask"] >> (lane // 4 % 4) & 1)
    return LanePattern(source, valid, enabled.astype(bool), bool(one["bc"]), bool(one["fi"]))


def lane_source(control: int, lanes: int = LANES) -> tuple[Array, Array]:
    """For each lane the lane that a DPP control reads from, and whether there is one."""
    lane = np.arange(lanes)
    row, place = lane // 16, lane % 16
    valid = np.ones(lanes, bool)
    if control < 0x100:
        source = lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    elif 0x101 <= control <= 0x10F:
        source, valid = lane + (control & 15), place + (control & 15) < 16
    elif 0x111 <= control <= 0x11F:
        source, valid = lane - (control & 15), place >= control & 15
    elif 0x121 <= control <= 0x12F:
        source = row * 16 + (place - (control & 15)) % 16
    elif control in _WHOLE_WAVE and lanes < LANES:
        raise UnsupportedError(f"DPP control {control:#x}")
    elif control == 0x130:
        source, valid = lane + 1, lane < 63
    elif control == 0x134:
        source = (lane + 1) % 64
    elif control == 0x138:
        source, valid = lane - 1, lane > 0
    elif control == 0x13C:
        source = (lane - 1) % 64
    elif control == 0x140:
        source = row * 16 + 15 - place
    elif control == 0x141:
        source = lane // 8 * 8 + 7 - lane % 8
    elif control == 0x142:
        source, valid = row * 16 - 1, row > 0
    elif control == 0x143:
        source, valid = np.full(64, 31), lane >= 32
    elif 0x150 <= control <= 0x15F:
        source = row * 16 + (control & 15)
    elif 0x160 <= control <= 0x16F and lanes < LANES:
        source = row * 16 + (place ^ control & 15)
    else:
        raise UnsupportedError(f"DPP control {control:#x}")
    return np.where(valid, source, 0), valid


def bits(array: Array) -> Array:
    """Values of 16 or 32 bits as u32."""
    if array.dtype.itemsize == 2:
        return array.view(U16).astype(U32)
    return array if array.dtype == U32 else array.view(U32)


def write_vector(number: int) -> Write:
    """Return a function that writes values of 32 bits to a vector register."""

    def write(w: Waves, value: Array) -> None:
        target = w.u[number]
        if value.dtype != U32:
            value = value.view(U32)
        if w.full:
            np.copyto(target, value)
        else:
            np.copyto(target, value, where=w.exec)

    return write


def write_pair(number: int) -> Write:
    """Return a function that writes 64-bit values to a register and the next one."""

    def write(w: Waves, value: Array) -> None:
        raw = value.view(U64)
        pair = w.words(number, 2)
        np.copyto(pair[0], raw.astype(U32), where=w.exec)
        np.copyto(pair[1], (raw >> U64(32)).astype(U32), where=w.exec)

    return write


def write_half(number: int, high: bool, keep: bool) -> Write:
    """Return a function that writes 16 bits to half a vector register; the other is kept or 0."""
    whole = write_vector(number)
    distance = U32(16 if high else 0)
    others = U32(0xFFFF if high else 0xFFFF0000)

    def write(w: Waves, value: Array) -> None:
        result = value.view(U16).astype(U32) << distance
        if keep or high:
            result = result | w.u[number] & others
        whole(w, result)

    return write


def write_selected(number: int, select: int, unused: int) -> Write:
    """Write a byte or word with SDWA; the rest becomes 0 or the sign, or is preserved."""
    whole = write_vector(number)
    if select == 6:
        return lambda w, value: whole(w, bits(value))
    if select > 6 or unused > 2:
        raise UnsupportedError("a part of a register that SDWA does not have")
    width, place = (8, select) if select < 4 else (16, select - 4)
    ones = (1 << width) - 1
    field_, distance = U32(ones), U32(width * place)
    others = U32(0xFFFFFFFF ^ ones << width * place)

    def write(w: Waves, value: Array) -> None:
        part = bits(value) & field_
        result = part << distance
        if unused == 2:
            result = result | w.u[number] & others
        elif unused == 1:
            negative = (part >> U32(width - 1)).astype(bool)
            above = U32(0xFFFFFFFF << (width * (place + 1)) & 0xFFFFFFFF)
            result = np.where(negative, result | above, result)
        whole(w, result)

    return write


def _check_writable(number: int) -> None:
    """Refuse a scalar result that is not written to a scalar register.

    Raises:
        UnsupportedError: the number of a constant or a vector register.
    """
    if number >= SGPRS:
        raise UnsupportedError(f"a scalar result in operand {number}, not a scalar register")


def write_mask(number: int) -> Write:
    """Return a function that writes a bit for each active lane, and 0 for other lanes."""
    _check_writable(number)
    if number == NULL:
        return lambda w, value: None

    def write(w: Waves, value: Array) -> None:
        w.put_lanes(number, value & w.exec)
        if number == EXEC:
            w.update_exec()

    return write


def write_scalar(number: int, kind: str) -> Write:
    """Return a function that writes a value to a scalar register or a pair."""
    _check_writable(number)
    if number == NULL:
        return lambda w, value: None
    double = kind in ("u64", "i64")
    changes_exec = number in (EXEC, EXEC + 1)

    def write(w: Waves, value: Array) -> None:
        if double:
            w.q[number][...] = value.view(U64)
        else:
            w.u[number][...] = value if value.dtype == U32 else value.view(U32)
        if changes_exec:
            w.update_exec()

    return write


def applied(function: ArrayFunction, reads: Sequence[Read], write: Write) -> Step:
    """Operands however they are read; the usual numbers of them without a list."""
    if len(reads) == 1:
        (first,) = reads
        return lambda w: write(w, function(first(w)))
    if len(reads) == 2:
        first, second = reads
        return lambda w: write(w, function(first(w), second(w)))
    return lambda w: write(w, function(*[read(w) for read in reads]))
