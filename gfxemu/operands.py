"""Source operands of instructions: special numbers, parts of registers, and other lanes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gfxemu.arrays import Array
from gfxemu.decode import Instruction
from gfxemu.registers import LANES

#: DPP controls beyond rows of 16 lanes, which RDNA does not have.
_WHOLE_WAVE = (0x130, 0x134, 0x138, 0x13C, 0x142, 0x143)
VCCZ, EXECZ, SCC, LITERAL, SDWA, DPP = 251, 252, 253, 255, 249, 250
#: In the field of the first source: the order of eight lanes follows; with the second mark, lanes
#: that are off are read, too.
DPP8, DPP8_FI = 233, 234
#: All marks of a register that the word behind the instruction names.
ELSEWHERE = (SDWA, DPP, DPP8, DPP8_FI)


class UnsupportedError(Exception):
    """An instruction that cannot be emulated, and why."""


def wide_literal(one: Instruction, kind: str) -> int:
    """Return the 64 bits of an instruction's literal: the upper half of a float, else the lower."""
    bits = literal_of(one)
    if kind == "f64":
        return bits << 32
    return bits | 0xFFFFFFFF << 32 if kind == "i64" and bits >> 31 else bits


def literal_of(one: Instruction) -> int:
    """Return the literal behind an instruction."""
    if one.literal is None:
        raise UnsupportedError("a literal that is not there")
    return one.literal & 0xFFFFFFFF


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
