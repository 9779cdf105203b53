"""Records of matrix multiplications (MFMA, WMMA) and dot products.

A matrix operation computes D = A B + C on the lanes of a wave, whatever EXEC says. A has M rows and
K columns. A lane holds one row of A and one column of B, and of both some of K: lane = group * M +
row, and the lanes of group g hold the g-th part of K. Results of 32x32 are in 16 registers: four
rows next to each other in four registers, the lanes 32 further hold the next four, and the next
register four rows, 8 below. Those of 16x16: four rows for each 16 lanes, and eight in the 32 lanes
of RDNA4. RDNA3 has one row for each 16 lanes of a register, the next register the next two; and
each 16 lanes hold all of K.

Products are exact, and sums are made in f32: of each four products in their order, then of these
sums in their order, then with C. The hardware's order is not known. Sums of integers are exact;
NEG of WMMA says which of A and B have a sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gfxemu.decode import Instruction
from gfxemu.operands import UnsupportedError
from gfxemu.records import (
    CONSTANT,
    HALF,
    RUN_DOT,
    RUN_INTEGERS,
    RUN_MATRIX,
    RUN_MIX,
    WHOLE,
    Context,
    Record,
)
from gfxemu.registers import AGPRS, SGPRS, VGPRS

_NAME = re.compile(
    r"V_(?:MFMA|WMMA)_(F32|F64|I32)_(\d+)X(\d+)X(\d+)(_\d+B)?"
    r"_(F16|BF16|F32|F64|F8F6F4|IU8|IU4|(?:FP8|BF8)(?=_))(_FP8|_BF8)?$"
)
#: Formats of F8F6F4's A and B, by CBSZ and BLGP; those of 6 and 4 bits are not emulated.
_CHOSEN = {0: "FP8", 1: "BF8"}
#: engine.c's kinds of elements.
_KINDS = {"F32": 0, "F16": 1, "BF16": 2, "FP8": 3, "BF8": 4}
#: Elements in a register, by type; those of FP8 and BF8 have the format of the arch.
ELEMENTS = {"F16": 2, "BF16": 2, "F32": 1, "FP8": 4, "BF8": 4, "IU8": 4, "IU4": 8}
INTEGERS = ("IU8", "IU4")


def supported(name: str) -> bool:
    """Whether a matrix operation is emulated."""
    found = _NAME.match(name)
    known = found is not None and found[6] in (*ELEMENTS, "F8F6F4")
    return found is not None and known and found[2] in ("16", "32") and not found[5]


def encode_matrix(context: Context, one: Instruction) -> Record:
    """A matrix multiplication with one block."""
    found = _NAME.match(one.name)
    if not found or not supported(one.name):
        raise UnsupportedError("this form of matrix multiplication")
    rows, depth, kind = int(found[2]), int(found[4]), found[6]
    other = (found[7] or kind).strip("_")
    if kind == "F8F6F4":
        if one["cbsz"] not in _CHOSEN or one["blgp"] not in _CHOSEN:
            raise UnsupportedError("a matrix multiplication of floats of 6 or 4 bits")
        kind, other = _CHOSEN[one["cbsz"]], _CHOSEN[one["blgp"]]
    elif one["cbsz"] or one["abid"] or one["blgp"]:
        raise UnsupportedError("broadcasts within a matrix multiplication (cbsz, abid, blgp)")
    integers = kind in INTEGERS
    modified = one["neg"] >> 2 or one["neg_hi"] if integers else one["neg"] | one["neg_hi"]
    if "WMMA" in one.name and (modified or (one["clmp"] and not integers)):
        raise UnsupportedError("modifiers of a matrix multiplication")
    if one["src0"] < VGPRS or one["src1"] < VGPRS or one["src2"] < SGPRS:
        raise UnsupportedError("a matrix that is not in vector registers")
    a = one["src0"] + (AGPRS - VGPRS) * (one["acc"] & 1)
    b = one["src1"] + (AGPRS - VGPRS) * (one["acc"] >> 1)
    accumulation = (AGPRS - VGPRS) * one["acc_cd"]
    c, bits = -1, 0
    if one["src2"] < VGPRS:
        constant = context.narrow(one, "src2", "f32")
        if constant.kind != CONSTANT:
            raise UnsupportedError("a matrix that is not in vector registers")
        bits = constant.value
    else:
        c = context.row(one["src2"] + accumulation)
    isa = one.isa
    groups = isa.lanes // rows if isa.splits_depth else 1
    each = depth // groups // ELEMENTS[kind]
    results = rows * rows // isa.lanes
    left, right, target = (context.row(number) for number in (a, b, one["vdst"] + accumulation))
    if max(left + each, right + each, target + results, c + results) > context.layout.vgprs:
        raise UnsupportedError("a matrix that is beyond the vector registers of the kernel")
    layout = [isa.matrix_rows, groups]
    if integers:
        x = [left, right, c, 32 // ELEMENTS[kind], one["neg"], rows, depth, bits, *layout]
        return Record(RUN_INTEGERS, dst=target, clamp=one["clmp"], x=x)
    x = [left, right, c, _KINDS[kind], _KINDS[other], rows, depth, bits, *layout]
    return Record(RUN_MATRIX, dst=target, x=x)


def _mix(context: Context, one: Instruction) -> Record:
    """A fused multiply-add of f32 and halves of registers."""
    high_bits = one["opsel_hi"] | one["opsel_hi2"] << 2
    record = Record(RUN_MIX, dst=context.row(one["vdst"]), clamp=one["clmp"])
    for place in range(3):
        half = high_bits >> place & 1
        record.operands.append(context.narrow(one, f"src{place}", "f16" if half else "f32"))
        # In these operations NEG_HI takes the sign away.
        absolute, negative = one["neg_hi"] >> place & 1, one["neg"] >> place & 1
        keep, flip = 0x7FFFFFFF if absolute else 0xFFFFFFFF, 0x80000000 * negative
        record.x += [half, 16 * (one["opsel"] >> place & 1), keep, flip]
    record.result = WHOLE if one.name == "V_MAD_MIX_F32" else HALF
    record.high = int(one.name == "V_MAD_MIXHI_F16")
    return record


def _dot(context: Context, one: Instruction) -> Record:
    """The sum of an f32 and two products, rounded once."""
    if one["neg"] or one["neg_hi"] or one["clmp"] or one["opsel"] or one["opsel_hi"] != 3:
        raise UnsupportedError("modifiers of a dot product")
    operands = [context.narrow(one, f"src{place}") for place in range(3)]
    x = [int(one.name.endswith("BF16"))]
    return Record(RUN_DOT, operands=operands, dst=context.row(one["vdst"]), x=x)


DOTS: dict[str, Callable[[Context, Instruction], Record]] = {
    **dict.fromkeys(("V_MAD_MIX_F32", "V_MAD_MIXLO_F16", "V_MAD_MIXHI_F16"), _mix),
    **dict.fromkeys(("V_DOT2_F32_F16", "V_DOT2_F32_BF16"), _dot),
}
"""Functions that make the records of dot products, by name."""
