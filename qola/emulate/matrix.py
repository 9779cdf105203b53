"""Matrix multiplication (MFMA): D = A B + C on the lanes of a wave, whatever EXEC says.

A has M rows and K columns. A lane holds one row of A and one column of B, and of both some of K:
lane = group * M + row, and the lanes of group g hold the g-th part of K. Results of 32x32 are in 16
registers: four rows next to each other in four registers, the lanes 32 further hold the next four,
and the next register four rows, 8 below. Those of 16x16: four rows for each 16 lanes.

Products are exact, and sums are made in f32, as NumPy makes them: the hardware's order of additions
is not known, and neither is ours a promise.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from qola.emulate.arrays import F16, F32, U8, U32, Array
from qola.emulate.decode import Instruction
from qola.emulate.float8 import FORMATS
from qola.emulate.operands import Literals, UnsupportedError, number_of
from qola.emulate.waves import AGPRS, SGPRS, VGPRS, Step, Waves

_NAME = re.compile(
    r"V_MFMA_(F32|F64)_(\d+)X(\d+)X(\d+)(_\d+B)?_(F16|BF16|F32|F64|(?:FP8|BF8)(?=_))(_FP8|_BF8)?$"
)
_UPPER = U32(0xFFFF0000)

#: (registers, waves, lanes) as u32 to (waves, rows, K) as f32, of gfx942's floats of 8 bits or not.
Unpack = Callable[[Array, bool], Array]


def _unpack_f16(rows: int) -> Unpack:
    groups = 64 // rows

    def unpack(raw: Array, fnuz: bool) -> Array:
        registers, waves, _ = raw.shape
        values = raw.view(F16).reshape(registers, waves, groups, rows, 2)
        ordered = values.transpose(1, 3, 2, 0, 4).astype(F32)
        return ordered.reshape(waves, rows, groups * registers * 2)

    return unpack


def _unpack_bf16(rows: int) -> Unpack:
    groups = 64 // rows

    def unpack(raw: Array, fnuz: bool) -> Array:
        registers, waves, _ = raw.shape
        values = np.empty((waves, rows, groups, registers, 2), U32)
        ordered = raw.reshape(registers, waves, groups, rows).transpose(1, 3, 2, 0)
        np.left_shift(ordered, U32(16), out=values[..., 0])
        np.bitwise_and(ordered, _UPPER, out=values[..., 1])
        return values.view(F32).reshape(waves, rows, groups * registers * 2)

    return unpack


def _unpack_f32(rows: int) -> Unpack:
    groups = 64 // rows

    def unpack(raw: Array, fnuz: bool) -> Array:
        registers, waves, _ = raw.shape
        values = raw.view(F32).reshape(registers, waves, groups, rows)
        return values.transpose(1, 3, 2, 0).reshape(waves, rows, groups * registers)

    return unpack


def _unpack_8(name: str) -> Callable[[int], Unpack]:
    def of_rows(rows: int) -> Unpack:
        groups = 64 // rows

        def unpack(raw: Array, fnuz: bool) -> Array:
            registers, waves, _ = raw.shape
            codes = raw.view(U8).reshape(registers, waves, groups, rows, 4)
            ordered = codes.transpose(1, 3, 2, 0, 4).reshape(waves, rows, groups * registers * 4)
            return FORMATS[name][fnuz].decoded(ordered)

        return unpack

    return of_rows


_UNPACK = {
    "F16": _unpack_f16,
    "BF16": _unpack_bf16,
    "F32": _unpack_f32,
    **{name: _unpack_8(name) for name in FORMATS},
}
_ELEMENTS = {"F16": 2, "BF16": 2, "F32": 1, "FP8": 4, "BF8": 4}


def supported(name: str) -> bool:
    """Whether a matrix operation is emulated."""
    found = _NAME.match(name)
    return found is not None and found[2] in ("16", "32") and not found[5] and found[6] in _UNPACK


def bind_matrix(one: Instruction, literals: Literals) -> Step:
    """A matrix multiplication with one block."""
    found = _NAME.match(one.name)
    if not found or not supported(one.name):
        raise UnsupportedError("this form of matrix multiplication")
    if one["cbsz"] or one["abid"] or one["blgp"]:
        raise UnsupportedError("broadcasts within a matrix multiplication (cbsz, abid, blgp)")
    rows, depth, kind = int(found[2]), int(found[4]), found[6]
    other = (found[7] or kind).strip("_")
    groups = 64 // rows
    registers = depth // groups // _ELEMENTS[kind]
    unpack_a, unpack_b = _UNPACK[kind](rows), _UNPACK[other](rows)
    a = one["src0"] + (AGPRS - VGPRS) * (one["acc"] & 1)
    b = one["src1"] + (AGPRS - VGPRS) * (one["acc"] >> 1)
    d = one["vdst"] + (AGPRS - VGPRS) * one["acc_cd"]
    results = rows * rows // 64
    blocks = results // 4
    constant = one["src2"] < VGPRS
    c = number_of(one, "src2", "f32", literals) if constant else one["src2"]
    if not constant:
        c += (AGPRS - VGPRS) * one["acc_cd"]
    if one["src0"] < VGPRS or one["src1"] < VGPRS or (constant and one["src2"] < SGPRS):
        raise UnsupportedError("a matrix that is not in vector registers")

    def run(w: Waves) -> None:
        left = unpack_a(w.words(a, registers), w.machine.fnuz)
        right = unpack_b(w.words(b, registers), w.machine.fnuz)
        product = np.matmul(left, right.transpose(0, 2, 1))
        # Rows: which four registers, which lanes, which register of the four.
        ordered = product.reshape(w.count, blocks, groups, 4, rows).transpose(1, 3, 0, 2, 4)
        target = w.words(d, results).view(F32).reshape(blocks, 4, w.count, groups, rows)
        if constant:
            np.add(ordered, w.f[c], out=target)
        else:
            old = w.words(c, results).view(F32).reshape(blocks, 4, w.count, groups, rows)
            np.add(ordered, old, out=target)

    return run
