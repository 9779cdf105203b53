"""Floats of 8 bits: E4M3 (fp8) and E5M2 (bf8), as gfx950 has them (OCP), and gfx942 (FNUZ).

FNUZ has exponents lower by one, no infinity and no negative zero, whose bits are the only NaN.
OCP's E4M3 has no infinity either. Values that are too large become infinity, or NaN in formats
without infinity: kernels clamp before they convert, or set FP16_OVFL, which is not emulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qola.emulate.arrays import F32, U8, U16, U32, U64, Array
from qola.emulate.table import vector

_SIGN = 0x80


@dataclass(frozen=True)
class Float8:
    """A format of 8 bits.

    Attributes:
        mantissa: bits of it that are stored.
        bias: of the exponent.
        largest: code of the largest finite number.
        over: code of values that are too large, without sign; in FNUZ formats the code of NaN.
        infinity: whether `over` is the code of infinity.
    """

    mantissa: int
    bias: int
    largest: int
    over: int
    infinity: bool = False
    fnuz: bool = False

    @cached_property
    def values(self) -> Array:
        """The value of each code, as f32."""
        codes = np.arange(_SIGN)
        field, part = codes >> self.mantissa, codes & (1 << self.mantissa) - 1
        whole = np.where(field > 0, part + (1 << self.mantissa), part).astype(F32)
        positive = np.ldexp(whole, np.maximum(field, 1) - self.bias - self.mantissa).astype(F32)
        positive[self.largest + 1 :] = np.nan
        if self.infinity:
            positive[self.over] = np.inf
        values = np.concatenate([positive, -positive])
        if self.fnuz:
            values[self.over] = np.nan
        return values

    @cached_property
    def _between(self) -> Array:
        """Midpoints between each finite number and the next, with one above the largest."""
        finite = self.values[: self.largest + 1].astype(np.float64)
        beyond = 2 * finite[-1] - finite[-2]
        return (finite + np.append(finite[1:], beyond)) / 2

    def decoded(self, codes: Array) -> Array:
        """Return the values of codes, as f32."""
        return self.values[codes]

    def encoded(self, values: Array) -> Array:
        """Return the codes nearest to values, of two that are equally near the even one."""
        magnitude = np.abs(values)
        codes = np.searchsorted(self._between, magnitude)
        tie = magnitude == self._between[np.minimum(codes, self.largest)]
        codes = codes + (tie & (codes & 1 == 1))
        codes = np.where(codes > self.largest, self.over, codes)
        signed = np.where(np.signbit(values), codes | _SIGN, codes)
        if self.fnuz:
            # Without a sign, 0 would be the NaN.
            signed = np.where(codes == 0, 0, signed)
        return np.where(np.isnan(values), self.over if self.fnuz else 0x7F, signed).astype(U8)


#: By name, those of gfx950 and those of gfx942.
FORMATS = {
    "FP8": (Float8(3, 7, 0x7E, 0x7F), Float8(3, 8, 0x7F, _SIGN, fnuz=True)),
    "BF8": (Float8(2, 15, 0x7B, 0x7C, infinity=True), Float8(2, 16, 0x7F, _SIGN, fnuz=True)),
}


def _operations(name: str) -> None:
    """Enter the conversions of a format."""
    formats = FORMATS[name]

    def pair(low: Array, high: Array, fnuz: int) -> Array:
        codes = (formats[fnuz].encoded(value).astype(U16) for value in (low, high))
        first, second = np.broadcast_arrays(*codes)
        return first | second << U16(8)

    def single(codes: Array, fnuz: int) -> Array:
        return formats[fnuz].decoded(codes & U32(0xFF))

    def both(codes: Array, fnuz: int) -> Array:
        low, high = (
            formats[fnuz].decoded(codes >> U32(at) & U32(0xFF)).view(U32).astype(U64)
            for at in (0, 8)
        )
        return low | high << U64(32)

    vector(f"V_CVT_PK_{name}_F32", "f32 f32 fnuz -> u16", pair)
    vector(f"V_CVT_F32_{name}", "u32 fnuz -> f32", single)
    vector(f"V_CVT_PK_F32_{name}", "u32 fnuz -> u64", both)


for _name in FORMATS:
    _operations(_name)
