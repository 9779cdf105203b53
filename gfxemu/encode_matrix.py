"""Records of matrix multiplications (MFMA, WMMA).

A matrix operation computes D = A B + C on the lanes of a wave, whatever EXEC says. A has M rows and
K columns. A lane holds one row of A and one column of B, and of both some of K: lane = group * M +
row, and the lanes of group g hold the g-th part of K. Results of 32x32 are in 16 registers: four
rows next to each other in four registers, the lanes 32 further hold the next four, and the next
register four rows, 8 below. Those of 16x16: four rows for each 16 lanes, and eight in the 32 lanes
of RDNA4. RDNA3 has one row for each 16 lanes of a register, the next register the next two; and
each 16 lanes hold all of K.

Products are exact, and sums are made in f32: of each four products in their order, then of these
sums in their order, then with C. The hardware's order is not known. Sums of f64 are fused, in the
order of K. Sums of integers are exact; NEG of WMMA says which of A and B have a sign. Of f64, rows
that follow each other are in the four groups of 16 lanes of a pair of registers.
"""

from __future__ import annotations

import re

from gfxemu.decode import Instruction
from gfxemu.operands import UnsupportedError
from gfxemu.records import (
    CONSTANT,
    RUN_DOUBLES,
    RUN_INTEGERS,
    RUN_MATRIX,
    Context,
    Record,
)
from gfxemu.registers import AGPRS, SGPRS, VGPRS

_NAME = re.compile(
    r"V_(?:MFMA|WMMA)_(F32|F64|I32)_(\d+)X(\d+)X(\d+)(_\d+B)?"
    r"_(F16|BF16|F32|F64|F8F6F4|IU8|IU4|I8|(?:FP8|BF8)(?=_))(_FP8|_BF8)?$"
)
#: Formats of F8F6F4's A and B, by CBSZ and BLGP; those of 6 and 4 bits are not emulated.
_CHOSEN = {0: "FP8", 1: "BF8"}
#: engine.c's kinds of elements.
_KINDS = {"F32": 0, "F16": 1, "BF16": 2, "FP8": 3, "BF8": 4}
#: Elements in a register, by type; those of FP8 and BF8 have the format of the arch.
ELEMENTS = {"F16": 2, "BF16": 2, "F32": 1, "FP8": 4, "BF8": 4, "I8": 4, "IU8": 4, "IU4": 8}
INTEGERS = ("I8", "IU8", "IU4")


def supported(name: str) -> bool:
    """Whether a matrix operation is emulated."""
    found = _NAME.match(name)
    known = found is not None and found[6] in (*ELEMENTS, "F64", "F8F6F4")
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
        read, real = (context.wide, "f64") if kind == "F64" else (context.narrow, "f32")
        constant = read(one, "src2", real)
        if constant.kind != CONSTANT:
            raise UnsupportedError("a matrix that is not in vector registers")
        bits = constant.value
    else:
        c = context.row(one["src2"] + accumulation)
    isa = one.isa
    groups = isa.lanes // rows if isa.splits_depth else 1
    # Registers with elements of A or B, and with results.
    each = depth // groups * 2 if kind == "F64" else depth // groups // ELEMENTS[kind]
    results = rows * rows // isa.lanes * (2 if kind == "F64" else 1)
    left, right, target = (context.row(number) for number in (a, b, one["vdst"] + accumulation))
    if max(left + each, right + each, target + results, c + results) > context.layout.vgprs:
        raise UnsupportedError("a matrix that is beyond the vector registers of the kernel")
    layout = [isa.matrix_rows, groups]
    if integers:
        signs = 3 if kind == "I8" else one["neg"]
        x = [left, right, c, 32 // ELEMENTS[kind], signs, rows, depth, bits, *layout]
        return Record(RUN_INTEGERS, dst=target, clamp=one["clmp"], x=x)
    if kind == "F64":
        return Record(RUN_DOUBLES, dst=target, x=[left, right, c, 0, 0, rows, depth, bits])
    x = [left, right, c, _KINDS[kind], _KINDS[other], rows, depth, bits, *layout]
    return Record(RUN_MATRIX, dst=target, x=x)
