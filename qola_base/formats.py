"""Number formats of kernels: rounding of float64 to them, and their bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

#: How a value between two of the format's becomes one of them.
Rounding = Literal["nearest_even", "toward_zero"]

#: Elements that are converted together: steps of a conversion stay in the processor's cache.
_TOGETHER = 1 << 15


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        bits: of a value.
        digits: of the significand, with the one that is not stored.
        lowest: exponent of the smallest normal number, 2**lowest.
        largest: the largest finite number.
        infinity: whether the format has one; without, too large numbers become the largest.
        negative_zero: whether its bits are a zero; without, they are the NaN.
    """

    name: str
    bits: int
    digits: int
    lowest: int
    largest: float
    infinity: bool = True
    negative_zero: bool = True

    def unit(self, rounding: Rounding = "nearest_even") -> float:
        """Return the largest relative error of rounding a normal number."""
        return float(2.0 ** (1 - self.digits if rounding == "toward_zero" else -self.digits))

    def step(self, rounding: Rounding = "nearest_even") -> float:
        """Return the largest absolute error of rounding a number below the normal ones."""
        return self.unit(rounding) * 2.0**self.lowest


FP32 = Format("fp32", 32, 24, -126, float(np.finfo(np.float32).max))
FP16 = Format("fp16", 16, 11, -14, 65504.0)
BF16 = Format("bf16", 16, 8, -126, float((2 - 2.0**-7) * 2.0**127))
#: E4M3 and E5M2 as gfx950 has them (OCP), and as gfx942 has them (one more exponent, no -0).
FP8 = Format("fp8", 8, 4, -6, 448.0, infinity=False)
BF8 = Format("bf8", 8, 3, -14, 57344.0)
FP8_FNUZ = Format("fp8_fnuz", 8, 4, -7, 240.0, infinity=False, negative_zero=False)
BF8_FNUZ = Format("bf8_fnuz", 8, 3, -15, 57344.0, infinity=False, negative_zero=False)


def rounded(values: Any, to: Format, rounding: Rounding = "nearest_even") -> F64:
    """Return values as a format has them, still as float64; infinities and NaN stay.

    Formats without infinity saturate, as conversions of CK and of the hardware do.
    """
    given = np.asarray(values, np.float64)
    return _in_pieces(lambda piece: _rounded(piece, to, rounding), given, np.float64)


def _in_pieces(
    convert: Callable[[NDArray[Any]], NDArray[Any]], values: NDArray[Any], kind: Any
) -> NDArray[Any]:
    """Return the results of a function that treats each element by itself, of a type."""
    if values.size <= _TOGETHER:
        return convert(values)
    flat, found = values.reshape(-1), np.empty(values.size, kind)
    for first in range(0, values.size, _TOGETHER):
        own = slice(first, first + _TOGETHER)
        found[own] = convert(flat[own])
    return found.reshape(values.shape)


def _rounded(given: F64, to: Format, rounding: Rounding) -> F64:
    finite = np.isfinite(given)
    plain = np.where(finite, np.clip(given, -2 * to.largest, 2 * to.largest), 0.0)
    exponents = np.maximum(np.frexp(plain)[1] - 1, to.lowest) - (to.digits - 1)
    # Scaling by powers of two is exact.
    whole = (np.trunc if rounding == "toward_zero" else np.rint)(np.ldexp(plain, -exponents))
    result: F64 = np.ldexp(whole, exponents)
    most = np.inf if to.infinity and rounding != "toward_zero" else to.largest
    result = np.where(np.abs(result) > to.largest, np.copysign(most, result), result)
    if not to.negative_zero:
        result = result + 0.0
    infinite = given if to.infinity else np.clip(given, -to.largest, to.largest)
    return np.where(finite, result, infinite)


def encoded(values: Any, to: Format) -> NDArray[Any]:
    """Return the bits of values that the format has, as unsigned integers of its size.

    Values are rounded first.
    """
    given = np.asarray(values, np.float64)
    return _in_pieces(lambda piece: _encoded(piece, to), given, np.dtype(f"uint{to.bits}"))


def _encoded(values: F64, to: Format) -> NDArray[Any]:
    given = _rounded(values, to, "nearest_even")
    unsigned = np.dtype(f"uint{to.bits}")
    if to is FP32:
        return given.astype(np.float32).view(unsigned)
    magnitude = np.abs(np.where(np.isfinite(given), given, 0.0))
    exponents = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, to.lowest)
    exponents = np.maximum(exponents, to.lowest)
    stored = to.digits - 1
    whole = np.ldexp(magnitude, stored - exponents).astype(np.int64)
    # A number below the normal ones has a significand without the leading one, and exponent 0.
    codes = whole + ((exponents - to.lowest) << stored)
    sign = np.int64(1) << (to.bits - 1)
    every = sign - 1
    if to.infinity:
        infinity = every >> stored << stored
        codes = np.where(np.isinf(given), infinity, codes)
    codes = np.where(np.signbit(given), codes | sign, codes)
    nan = every if to.negative_zero else sign
    result: NDArray[Any] = np.where(np.isnan(given), nan, codes).astype(unsigned)
    return result


def decoded(codes: Any, of: Format) -> F64:
    """Return the values that bits stand for."""
    return _in_pieces(lambda piece: _decoded(piece, of), np.asarray(codes), np.float64)


def _decoded(given: NDArray[Any], of: Format) -> F64:
    if of is FP32:
        return given.astype(np.uint32).view(np.float32).astype(np.float64)
    bits = given.astype(np.int64)
    stored = of.digits - 1
    sign = np.int64(1) << (of.bits - 1)
    magnitude = bits & (sign - 1)
    field, part = magnitude >> stored, magnitude & ((1 << stored) - 1)
    lead = np.where(field > 0, 1 << stored, 0)
    exponents = np.maximum(field, 1) - 1 + of.lowest - stored
    values = np.ldexp((lead + part).astype(np.float64), exponents)
    top = (int(sign) - 1) >> stored
    if of.infinity:
        values = np.where(field == top, np.where(part == 0, np.inf, np.nan), values)
    elif of.negative_zero:
        values = np.where(magnitude == sign - 1, np.nan, values)
    result = np.where(bits & sign, -values, values)
    return result if of.negative_zero else np.where(bits == sign, np.nan, result)
