"""Matrix multiplication (MFMA, WMMA): D = A B + C on the lanes of a wave, whatever EXEC says.

A has M rows and K columns. A lane holds one row of A and one column of B, and of both some of K:
lane = group * M + row, and the lanes of group g hold the g-th part of K. Results of 32x32 are in 16
registers: four rows next to each other in four registers, the lanes 32 further hold the next four,
and the next register four rows, 8 below. Those of 16x16: four rows for each 16 lanes, and eight in
the 32 lanes of RDNA4. RDNA3 has one row for each 16 lanes of a register, the next register the next
two; and each 16 lanes hold all of K.

Products are exact, and sums are made in f32: of each four products in their order, then of these
sums in their order, then with C. The hardware's order is not known. Sums of integers (WMMA) are
exact; NEG says which of A and B have a sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gfxemu.arrays import F16, F32, F64, I32, I64, U8, U16, U32, Array
from gfxemu.decode import Instruction
from gfxemu.float8 import FORMATS, values_of
from gfxemu.lanes import Binder
from gfxemu.numbers import fma, from_bf16
from gfxemu.operands import (
    Literals,
    Read,
    UnsupportedError,
    listed,
    number_of,
    write_half,
    write_vector,
)
from gfxemu.waves import AGPRS, SGPRS, VGPRS, Step, Waves

NAME = re.compile(
    r"V_(?:MFMA|WMMA)_(F32|F64|I32)_(\d+)X(\d+)X(\d+)(_\d+B)?"
    r"_(F16|BF16|F32|F64|F8F6F4|IU8|IU4|(?:FP8|BF8)(?=_))(_FP8|_BF8)?$"
)
#: Formats of F8F6F4's A and B, by CBSZ and BLGP; those of 6 and 4 bits are not emulated.
CHOSEN = {0: "FP8", 1: "BF8"}

#: Elements in a register, by type; those of FP8 and BF8 have the format of the arch.
ELEMENTS = {"F16": 2, "BF16": 2, "F32": 1, "FP8": 4, "BF8": 4, "IU8": 4, "IU4": 8}
INTEGERS = ("IU8", "IU4")
_STORED = {4: U8, 2: U16, 1: F32}


def _unpack(raw: Array, kind: str, rows: int, fnuz: bool) -> Array:
    """Elements in registers, (registers, waves, lanes), as f32 of shape (waves, rows, K)."""
    registers, waves, lanes = raw.shape
    count = ELEMENTS[kind]
    stored = raw.view(_STORED[count]).reshape(registers, waves, lanes // rows, rows, count)
    ordered = stored.transpose(1, 3, 2, 0, 4)
    if kind == "BF16":
        # The upper halves of f32.
        wide = np.zeros(ordered.shape, U32)
        wide.view(U16)[..., 1::2] = ordered
        return wide.view(F32).reshape(waves, rows, -1)
    values = ordered.reshape(waves, rows, -1)
    if kind == "F16":
        return values.view(F16).astype(F32)
    return values if kind == "F32" else values_of(FORMATS[kind][fnuz])[values]


def _unpack_integers(raw: Array, kind: str, rows: int, signed: int) -> Array:
    """Elements in registers, as `_unpack`, as integers; the lowest bits have the first one."""
    registers, waves, lanes = raw.shape
    count = ELEMENTS[kind]
    bits = 32 // count
    stored = raw[..., None] >> (bits * np.arange(count)).astype(U32) & U32(2**bits - 1)
    values = stored.astype(I64)
    if signed:
        values = (values ^ 1 << bits - 1) - (1 << bits - 1)
    ordered = values.reshape(registers, waves, lanes // rows, rows, count)
    return ordered.transpose(1, 3, 2, 0, 4).reshape(waves, rows, -1)


def _multiplied(left: Array, right: Array) -> Array:
    """Return A B for (waves, rows, K) and (waves, columns, K), in the order of the engine in C."""
    # Each library for matrices adds up to four products in their order, with a fused operation.
    other = right.transpose(0, 2, 1)
    step, depth = 4, left.shape[2]
    # A sum of zeros is +0, whatever their signs.
    total: Array = np.matmul(left[:, :, :step], other[:, :step]) + F32(0)
    for first in range(step, depth, step):
        total += np.matmul(left[:, :, first : first + step], other[:, first : first + step])
    return total


def supported(name: str) -> bool:
    """Whether a matrix operation is emulated."""
    found = NAME.match(name)
    known = found is not None and found[6] in (*ELEMENTS, "F8F6F4")
    return found is not None and known and found[2] in ("16", "32") and not found[5]


def bind_matrix(one: Instruction, literals: Literals) -> Step:
    """A matrix multiplication with one block."""
    found = NAME.match(one.name)
    if not found or not supported(one.name):
        raise UnsupportedError("this form of matrix multiplication")
    rows, depth, kind = int(found[2]), int(found[4]), found[6]
    other = (found[7] or kind).strip("_")
    if kind == "F8F6F4":
        if one["cbsz"] not in CHOSEN or one["blgp"] not in CHOSEN:
            raise UnsupportedError("a matrix multiplication of floats of 6 or 4 bits")
        kind, other = CHOSEN[one["cbsz"]], CHOSEN[one["blgp"]]
    elif one["cbsz"] or one["abid"] or one["blgp"]:
        raise UnsupportedError("broadcasts within a matrix multiplication (cbsz, abid, blgp)")
    integers = kind in INTEGERS
    modified = one["neg"] >> 2 or one["neg_hi"] if integers else one["neg"] | one["neg_hi"]
    if "WMMA" in one.name and (modified or (one["clmp"] and not integers)):
        raise UnsupportedError("modifiers of a matrix multiplication")
    lanes = one.isa.lanes
    groups = lanes // rows
    registers = depth // (groups if one.isa.splits_depth else 1) // ELEMENTS[kind]
    # Without parts of K, the other lanes have the same as the first.
    own = lanes if one.isa.splits_depth else rows
    a = one["src0"] + (AGPRS - VGPRS) * (one["acc"] & 1)
    b = one["src1"] + (AGPRS - VGPRS) * (one["acc"] >> 1)
    d = one["vdst"] + (AGPRS - VGPRS) * one["acc_cd"]
    results = rows * rows // lanes
    # Rows that lie next to each other in the registers of a lane.
    height = one.isa.matrix_rows
    blocks = results // height
    constant = one["src2"] < VGPRS
    c = number_of(one, "src2", "f32", literals) if constant else one["src2"]
    if not constant:
        c += (AGPRS - VGPRS) * one["acc_cd"]
    if one["src0"] < VGPRS or one["src1"] < VGPRS or (constant and one["src2"] < SGPRS):
        raise UnsupportedError("a matrix that is not in vector registers")

    def order(w: Waves, product: Array) -> Array:
        # Rows: which four registers, which lanes, which register of the four.
        return product.reshape(w.count, blocks, groups, height, rows).transpose(1, 3, 0, 2, 4)

    def run_integers(w: Waves) -> None:
        left, right = (
            _unpack_integers(w.words(number, registers)[:, :, :own], kind, rows, signed)
            for number, signed in ((a, one["neg"] & 1), (b, one["neg"] & 2))
        )
        target = w.words(d, results).reshape(blocks, height, w.count, groups, rows)
        old = w.i[c] if constant else w.words(c, results).view(I32).reshape(target.shape)
        total = order(w, np.matmul(left, right.transpose(0, 2, 1))) + old.astype(I64)
        if one["clmp"]:
            total = np.clip(total, -(2**31), 2**31 - 1)
        target[...] = total.astype(I32).view(U32)

    if integers:
        return run_integers

    def run(w: Waves) -> None:
        left = _unpack(w.words(a, registers)[:, :, :own], kind, rows, w.machine.fnuz)
        right = _unpack(w.words(b, registers)[:, :, :own], other, rows, w.machine.fnuz)
        ordered = order(w, _multiplied(left, right))
        target = w.words(d, results).view(F32).reshape(blocks, height, w.count, groups, rows)
        if constant:
            np.add(ordered, w.f[c], out=target)
        else:
            old = w.words(c, results).view(F32).reshape(blocks, height, w.count, groups, rows)
            np.add(ordered, old, out=target)

    return run


def _source(one: Instruction, place: int, literals: Literals) -> Read:
    """An f32, or a half of a register as f16."""
    high_bits = one["opsel_hi"] | one["opsel_hi2"] << 2
    half = high_bits >> place & 1
    number = number_of(one, f"src{place}", "f16" if half else "f32", literals)
    distance = U32(16 * (one["opsel"] >> place & 1))
    # In these operations NEG_HI takes the sign away.
    absolute, negative = one["neg_hi"] >> place & 1, one["neg"] >> place & 1

    def read(w: Waves) -> Array:
        if half:
            raw = (w.u[number] >> distance).astype(U16)
            value: Array = raw.view(F16).astype(F32)
        else:
            value = w.f[number]
        if absolute:
            value = np.abs(value)
        return -value if negative else value

    return read


def _mix(destination: str) -> Binder:
    def bind(one: Instruction, literals: Literals) -> Step:
        sources = [_source(one, place, literals) for place in range(3)]
        clamp = bool(one["clmp"])

        def compute(w: Waves) -> Array:
            result = fma(*[read(w) for read in sources])
            return np.fmin(np.fmax(result, F32(0)), F32(1)) if clamp else result

        if destination == "f32":
            write = write_vector(one["vdst"])
            return lambda w: write(w, compute(w))
        half = write_half(one["vdst"], destination == "high", True)
        return lambda w: half(w, compute(w).astype(F16))

    return bind


def _dot(convert: Callable[[Array], Array]) -> Binder:
    """The sum of an f32 and two products, rounded once."""

    def bind(one: Instruction, literals: Literals) -> Step:
        if one["neg"] or one["neg_hi"] or one["clmp"] or one["opsel"] or one["opsel_hi"] != 3:
            raise UnsupportedError("modifiers of a dot product")
        a, b = (listed(number_of(one, f"src{n}", "u32", literals), "u32") for n in range(2))
        c = listed(number_of(one, "src2", "f32", literals), "f32")
        write = write_vector(one["vdst"])

        def run(w: Waves) -> None:
            total = c(w).astype(F64)
            for distance in (U32(0), U32(16)):
                left = convert((a(w) >> distance).astype(U16)).astype(F64)
                total = total + left * convert((b(w) >> distance).astype(U16))
            write(w, total.astype(F32))

        return run

    return bind


MIXED: dict[str, Binder] = {
    "V_MAD_MIX_F32": _mix("f32"),
    "V_MAD_MIXLO_F16": _mix("low"),
    "V_MAD_MIXHI_F16": _mix("high"),
    "V_DOT2_F32_F16": _dot(lambda raw: raw.view(F16)),
    "V_DOT2_F32_BF16": _dot(from_bf16),
}
