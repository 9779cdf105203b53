"""Floats of 8 bits: E4M3 (fp8) and E5M2 (bf8), as gfx950 has them (OCP), and gfx942 (FNUZ).

FNUZ has exponents lower by one, no infinity and no negative zero, whose bits are the only NaN.
OCP's E4M3 has no infinity either. Values that are too large become infinity, or NaN in formats
without infinity: kernels clamp before they convert, or set FP16_OVFL, which is not emulated.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from gfxemu.arrays import F32, F64, U8, U16, U32, U64, Array
from gfxemu.table import vector
from qola_base.formats import BF8, BF8_FNUZ, FP8, FP8_FNUZ, Format, decoded

_SIGN = 0x80

#: By name, those of gfx950 and those of gfx942.
FORMATS = {"FP8": (FP8, FP8_FNUZ), "BF8": (BF8, BF8_FNUZ)}


@cache
def values_of(of: Format) -> Array:
    """Return the value of each code, as f32."""
    return decoded(np.arange(256), of).astype(F32)


@cache
def _between(to: Format) -> Array:
    """Midpoints between each finite number and the next, with one above the largest."""
    values = values_of(to)
    finite = values[: int(np.flatnonzero(values == to.largest)[0]) + 1].astype(F64)
    beyond = 2 * finite[-1] - finite[-2]
    return (finite + np.append(finite[1:], beyond)) / 2


def _encoded(values: Array, to: Format) -> Array:
    """Return the codes nearest to values, of two that are equally near the even one."""
    magnitude, between = np.abs(values), _between(to)
    largest = len(between) - 1
    nan = 0x7F if to.negative_zero else _SIGN
    codes = np.searchsorted(between, magnitude)
    tie = magnitude == between[np.minimum(codes, largest)]
    codes = codes + (tie & (codes & 1 == 1))
    # The code behind the largest number is that of infinity or, in FP8, of NaN.
    codes = np.where(codes > largest, largest + 1 if to.negative_zero else nan, codes)
    signed = np.where(np.signbit(values), codes | _SIGN, codes)
    if not to.negative_zero:
        # Without a sign, 0 would be the NaN.
        signed = np.where(codes == 0, 0, signed)
    return np.where(np.isnan(values), nan, signed).astype(U8)


def _operations(name: str) -> None:
    """Enter the conversions of a format."""
    formats = FORMATS[name]

    def pair(low: Array, high: Array, fnuz: int) -> Array:
        codes = (_encoded(value, formats[fnuz]).astype(U16) for value in (low, high))
        first, second = np.broadcast_arrays(*codes)
        return first | second << U16(8)

    def single(codes: Array, fnuz: int) -> Array:
        return values_of(formats[fnuz])[codes & U32(0xFF)]

    def both(codes: Array, fnuz: int) -> Array:
        low, high = (
            values_of(formats[fnuz])[codes >> U32(at) & U32(0xFF)].view(U32).astype(U64)
            for at in (0, 8)
        )
        return low | high << U64(32)

    vector(f"V_CVT_PK_{name}_F32", "f32 f32 fnuz -> u16", pair)
    vector(f"V_CVT_F32_{name}", "u32 fnuz -> f32", single)
    vector(f"V_CVT_PK_F32_{name}", "u32 fnuz -> u64", both)


for _name in FORMATS:
    _operations(_name)
