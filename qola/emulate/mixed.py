"""Operations of VOP3P that mix f16 and f32, and dot products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qola.emulate.arrays import F16, F32, F64, U16, U32, Array
from qola.emulate.decode import Instruction
from qola.emulate.lanes import Binder
from qola.emulate.numbers import fma_f32, from_bf16
from qola.emulate.operands import (
    Literals,
    Read,
    UnsupportedError,
    listed,
    number_of,
    write_half,
    write_vector,
)
from qola.emulate.waves import Step, Waves


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
            result = fma_f32(*[read(w) for read in sources])
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
