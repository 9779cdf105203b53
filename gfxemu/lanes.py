"""Operations across lanes: reads and writes of one lane, permutations, swaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gfxemu.arrays import I64, U32, Array
from gfxemu.decode import Instruction
from gfxemu.operands import (
    Literals,
    Read,
    UnsupportedError,
    listed,
    number_of,
    write_scalar,
    write_vector,
)
from gfxemu.waves import AGPRS, VGPRS, Step, Waves

Binder = Callable[[Instruction, Literals], Step]


def _readfirstlane(one: Instruction, literals: Literals) -> Step:
    source = listed(number_of(one, "src0", "u32", literals), "u32")
    write = write_scalar(one["vdst"] % VGPRS, "u32")

    def run(w: Waves) -> None:
        value = source(w)
        if value.shape[1] > 1:
            # Without an active lane argmax returns 0.
            value = np.take_along_axis(value, w.exec.argmax(axis=1)[:, None], axis=1)
        write(w, value)

    return run


def _lane_number(one: Instruction, literals: Literals) -> Read:
    """Return a function that reads the number of a lane, which all lanes of a wave share."""
    if one["src1"] >= VGPRS:
        raise UnsupportedError("the number of a lane in a vector register")
    return listed(number_of(one, "src1", "u32", literals), "u32")


def _readlane(one: Instruction, literals: Literals) -> Step:
    source = listed(number_of(one, "src0", "u32", literals), "u32")
    lane = _lane_number(one, literals)
    write = write_scalar(one["vdst"] % VGPRS, "u32")
    last = U32(one.isa.lanes - 1)

    def run(w: Waves) -> None:
        wanted = np.broadcast_to(lane(w) & last, (w.count, 1)).astype(I64)
        value = np.broadcast_to(source(w), w.exec.shape)
        write(w, np.take_along_axis(value, wanted, axis=1))

    return run


def _writelane(one: Instruction, literals: Literals) -> Step:
    value = listed(number_of(one, "src0", "u32", literals), "u32")
    lane = _lane_number(one, literals)
    target = listed(one["vdst"], "u32")
    last = U32(one.isa.lanes - 1)

    def run(w: Waves) -> None:
        wanted = np.broadcast_to(lane(w) & last, (w.count, 1)).astype(I64)
        # Whatever EXEC says.
        np.put_along_axis(target(w), wanted, value(w), axis=1)

    return run


def _swap(distance: int) -> Binder:
    """Exchange the lower half of each row of SRC0 with the upper half of VDST's."""
    lane = np.arange(64)
    lower = lane[lane // distance % 2 == 0]
    upper = lower + distance

    def bind(one: Instruction, literals: Literals) -> Step:
        if one["opsel"]:
            # VOP3 has them in the bits of op_sel.
            raise UnsupportedError("fi or bound_ctrl of a swap")
        first = listed(number_of(one, "src0", "u32", literals), "u32")
        second = listed(one["vdst"], "u32")

        def run(w: Waves) -> None:
            source, target = first(w), second(w)
            kept = source[:, lower]
            source[:, lower] = target[:, upper]
            target[:, upper] = kept

        return run

    return bind


def _exchange(one: Instruction, literals: Literals) -> Step:
    """Exchange two registers."""
    numbers = one["src0"], one["vdst"]
    writes = [write_vector(number) for number in numbers]

    def run(w: Waves) -> None:
        first, second = (w.u[number].copy() for number in numbers)
        writes[0](w, second)
        writes[1](w, first)

    return run


def _permlane16(distance: int) -> Binder:
    """Permute the 16 lanes of each row, or of its neighbouring row.

    Two scalar operands have four bits a lane. Bits of op_sel are FI and BOUND_CTRL, as with DPP.
    """
    lane = np.arange(64)

    def bind(one: Instruction, literals: Literals) -> Step:
        source = listed(number_of(one, "src0", "u32", literals), "u32")
        selects = [listed(number_of(one, f"src{n}", "u32", literals), "u32") for n in (1, 2)]
        write = write_vector(one["vdst"])
        own = lane[: one.isa.lanes]
        rows, shift = (own ^ distance) // 16 * 16, (own % 8 * 4).astype(U32)
        upper = own % 16 >= 8
        inactive, zeros = one["opsel"] & 1, one["opsel"] >> 1 & 1

        def run(w: Waves) -> None:
            chosen = np.where(upper, selects[1](w), selects[0](w)) >> shift & U32(15)
            lanes = np.broadcast_to(rows + chosen.astype(I64), w.exec.shape)
            there = np.take_along_axis(w.exec, lanes, axis=1) | bool(inactive)
            found = np.take_along_axis(np.broadcast_to(source(w), lanes.shape), lanes, axis=1)
            old = w.u[one["vdst"]]
            write(w, np.where(there, found, U32(0) if zeros else old))

        return run

    return bind


def _accvgpr(reads: bool, writes: bool) -> Binder:
    """Move from or to accumulation registers."""

    def bind(one: Instruction, literals: Literals) -> Step:
        number = number_of(one, "src0", "u32", literals)
        source = listed(number + (AGPRS - VGPRS if reads else 0), "u32")
        write = write_vector(one["vdst"] + (AGPRS - VGPRS if writes else 0))
        return lambda w: write(w, source(w))

    return bind


def _wanted(one: Instruction) -> Callable[[Waves], Array]:
    """The lane that each lane's address means: high bits and the lowest two are ignored."""
    offset = U32(one["offset0"] | one["offset1"] << 8)
    address, last = listed(one["addr"], "u32"), U32(one.isa.lanes - 1)
    return lambda w: ((address(w) + offset) >> U32(2) & last).astype(I64)


def _bpermute(one: Instruction, literals: Literals) -> Step:
    wanted, data, write = _wanted(one), listed(one["data0"], "u32"), write_vector(one["vdst"])

    def run(w: Waves) -> None:
        lanes = wanted(w)
        found = np.take_along_axis(data(w), lanes, axis=1)
        if not w.full:
            # A lane that is off gives 0.
            found = found * np.take_along_axis(w.exec, lanes, axis=1)
        write(w, found)

    return run


def _permute(one: Instruction, literals: Literals) -> Step:
    wanted, data, write = _wanted(one), listed(one["data0"], "u32"), write_vector(one["vdst"])

    def run(w: Waves) -> None:
        lanes, values = wanted(w), data(w)
        result = np.zeros((w.count, one.isa.lanes), U32)
        # The highest of the lanes that write to one place wins.
        for lane in range(one.isa.lanes):
            rows = np.flatnonzero(w.exec[:, lane])
            result[rows, lanes[rows, lane]] = values[rows, lane]
        write(w, result)

    return run


def _swizzle(one: Instruction, literals: Literals) -> Step:
    offset = one["offset0"] | one["offset1"] << 8
    lane = np.arange(one.isa.lanes)
    if offset & 0x8000:
        # Any order of each four lanes.
        source = lane // 4 * 4 + (offset >> 2 * (lane % 4) & 3)
    else:
        and_mask, or_mask, xor_mask = offset & 31, offset >> 5 & 31, offset >> 10 & 31
        source = lane // 32 * 32 + ((lane % 32 & and_mask | or_mask) ^ xor_mask)
    if offset >= 0xC000:
        raise UnsupportedError("ds_swizzle with a rotation or FFT")
    data, put = listed(one["addr"], "u32"), write_vector(one["vdst"])

    def run(w: Waves) -> None:
        put(w, data(w)[:, source] * w.exec[:, source])

    return run


LANES: dict[str, Binder] = {
    "V_READFIRSTLANE_B32": _readfirstlane,
    "V_READLANE_B32": _readlane,
    "V_WRITELANE_B32": _writelane,
    "V_PERMLANE16_SWAP_B32": _swap(16),
    "V_PERMLANE32_SWAP_B32": _swap(32),
    "V_PERMLANE16_B32": _permlane16(0),
    "V_PERMLANEX16_B32": _permlane16(16),
    "V_SWAP_B32": _exchange,
    "V_ACCVGPR_READ": _accvgpr(True, False),
    "V_ACCVGPR_WRITE": _accvgpr(False, True),
    "V_ACCVGPR_MOV_B32": _accvgpr(True, True),
    "DS_BPERMUTE_B32": _bpermute,
    "DS_PERMUTE_B32": _permute,
    "DS_SWIZZLE_B32": _swizzle,
}
