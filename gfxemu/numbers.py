"""Arithmetic that NumPy has no function for: fused, rounded and saturated as the ISA says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gfxemu.arrays import F16, F32, F64, I32, I64, U8, U16, U32, U64, Array

#: Coefficients of powers of 2 between -0.5 and 0.5, the constant first.
EXP2 = tuple(math.log(2) ** power / math.factorial(power) for power in range(12))
#: Those of s, s**3, ... of the logarithm of (1 + s) / (1 - s) to base 2.
LOG2 = tuple(2 / math.log(2) / power for power in range(1, 20, 2))
#: Added to an f64, it leaves the nearest integer in the lowest bits.
_LARGE = F64(6755399441055744.0)


def power_of_2(value: Array) -> Array:
    """2 to the power of f32 values, in steps of f64 that every machine rounds alike."""
    x = np.clip(value.astype(F64), -200, 200)
    moved = x + _LARGE
    r = x - (moved - _LARGE)
    result = np.full_like(x, EXP2[-1])
    for coefficient in reversed(EXP2[:-1]):
        result = result * r + coefficient
    scale = (moved.view(U64) + U64(1023)) << U64(52)
    return (result * scale.view(F64)).astype(F32)


def log_of_2(value: Array) -> Array:
    """The logarithm of f32 values to base 2, in steps of f64 that every machine rounds alike."""
    bits = value.astype(F64).view(U64)
    mantissa = bits & U64(0xFFFFFFFFFFFFF)
    # From the root of 1/2 to that of 2.
    up = (mantissa > U64(0x6A09E667F3BCC)).astype(U64)
    exponent = ((bits >> U64(52)).view(I64) - 1023 + up.view(I64)).astype(F64)
    m = (mantissa | (U64(1023) - up) << U64(52)).view(F64)
    s = (m - 1) / (m + 1)
    z = s * s
    result = np.full_like(s, LOG2[-1])
    for coefficient in reversed(LOG2[:-1]):
        result = result * z + coefficient
    found = (result * s + exponent).astype(F32)
    found = np.where(value == 0, F32(-np.inf), found)
    found = np.where(value == np.inf, value, found)
    return np.where((value < 0) | np.isnan(value), F32(np.nan), found)


def fma(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add, rounded once."""
    if a.dtype.itemsize == 8:
        return exact_fma(a, b, c)
    return sum_to_odd(a.astype(F64) * b, c).astype(a.dtype)


def sum_to_odd(product: Array, c: Array) -> Array:
    """Add numbers of f64 so that a later rounding to fewer bits is that of the exact sum.

    An inexact sum is truncated, and its lowest bit set.
    """
    total = product + c
    back = total - product
    # The error of the sum (Knuth).
    rest = (product - (total - back)) + (c - back)
    inexact = (rest != 0) & np.isfinite(total)
    beyond = inexact & (np.signbit(rest) != np.signbit(total))
    return (total.view(U64) - beyond.astype(U64) | inexact.astype(U64)).view(F64)


def exact_fma(a: Array, b: Array, c: Array, factor: Array | float = 1.0) -> Array:
    """A fused multiply-add of f64, times a power of two, rounded once."""
    a, b, c, factors = np.broadcast_arrays(a, b, c, factor)
    # Also the sign of an exact 0.
    result = (a * b + c) * factors
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for place in zip(*np.nonzero(finite), strict=True):
        (x, over_x), (y, over_y), (z, over_z), (f, over_f) = (
            float(values[place]).as_integer_ratio() for values in (a, b, c, factors)
        )
        # Python rounds a quotient of integers once, denormals included.
        if top := (x * y * over_z + z * over_x * over_y) * f:
            try:
                result[place] = top / (over_x * over_y * over_z * over_f)
            except OverflowError:
                result[place] = math.inf if top > 0 else -math.inf
    return result


def fract(value: Array) -> Array:
    """What is left of a float above the next lower integer: always less than 1.

    The difference of a small negative number rounds to 1 (LLVM folds the instruction like this).
    """
    rest = value - np.floor(value)
    below_1 = np.nextafter(value.dtype.type(1), value.dtype.type(0))
    return np.where(rest >= 1, below_1, rest)


def median(a: Array, b: Array, c: Array) -> Array:
    """The middle of three integers, or of three floats of which the smallest counts for a NaN."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.maximum(low, np.minimum(high, c))


def median_float(a: Array, b: Array, c: Array) -> Array:
    """The middle of three floats; where one is not a number, the smallest of the others."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, np.fmin(np.fmin(a, b), c), median(a, b, c))


def to_integer(value: Array, kind: Any) -> Array:
    """Round towards zero and saturate, for an integer type; NaN becomes 0."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    whole = np.nan_to_num(np.trunc(value.astype(F64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(whole, low, high).astype(I64).astype(kind)


def to_f16(value: Array) -> Array:
    """Convert f32 to the nearest f16; a NaN becomes quiet, and keeps its upper bits."""
    bits = value.view(U32)
    nan = bits >> U32(16) & U32(0x8000) | U32(0x7E00) | bits >> U32(13) & U32(0x1FF)
    return np.where(np.isnan(value), nan.astype(U16), value.astype(F16).view(U16)).view(F16)


def f16_toward_zero(value: Array) -> Array:
    """Convert f32 to f16, towards zero: the nearest f16, and one less where that is larger."""
    near = to_f16(value)
    over = np.abs(near.astype(F32)) > np.abs(value)
    # An f16 without its sign counts up with its bits; infinity becomes the largest number.
    return (near.view(U16) - over.astype(U16)).view(F16)


def bf16_bits(value: Array) -> Array:
    """Convert f32 to the bits of a bf16, to nearest even; NaNs stay NaNs, made quiet."""
    bits = value.view(U32)
    rounded = (bits + U32(0x7FFF) + (bits >> U32(16) & U32(1))) >> U32(16)
    return np.where(np.isnan(value), bits >> U32(16) | U32(0x40), rounded).astype(U16)


def from_bf16(bits: Array) -> Array:
    """Convert the bits of bf16 to f32."""
    return (bits.astype(U32) << U32(16)).view(F32)


def halves(low: Array, high: Array) -> Array:
    """Two 16-bit values in one register."""
    low, high = np.broadcast_arrays(low, high)
    return low.view(U16).astype(U32) | high.view(U16).astype(U32) << U32(16)


def count_ones(value: Array) -> Array:
    """Number of bits that are set."""
    width = value.dtype.itemsize
    octets = np.ascontiguousarray(value).view(U8).reshape((*value.shape, width))
    return np.unpackbits(octets, axis=-1).sum(axis=-1).astype(U32)


def first_one(value: Array) -> Array:
    """The lowest bit that is set; -1 for none."""
    wide = value.astype(U64)
    lowest = wide & (~wide + U64(1))
    found = count_ones(lowest - U64(1))
    return np.where(wide == 0, U32(0xFFFFFFFF), found).astype(U32)


def leading(value: Array) -> Array:
    """Zeros above the highest bit that is set; -1 for none."""
    wide = value.astype(U64)
    # Fill all bits below the highest: their count is its place.
    for distance in (1, 2, 4, 8, 16, 32):
        wide = wide | wide >> U64(distance)
    zeros = U32(8 * value.dtype.itemsize) - count_ones(wide)
    return np.where(value == 0, U32(0xFFFFFFFF), zeros)


def leading_signed(value: Array) -> Array:
    """Bits above the highest that differs from the sign, of i32; -1 for none."""
    return leading(np.where(value < 0, ~value, value).view(U32))


def reversed_bits(value: Array) -> Array:
    """The bits in the other order."""
    width = value.dtype.itemsize
    octets = np.ascontiguousarray(value).view(U8).reshape((*value.shape, width))
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view(value.dtype)[..., 0]


def extracted(value: Array, offset: Array, width: Array) -> Array:
    """Bits of a number from an offset on, those of a signed number with their sign."""
    bits = 8 * value.dtype.itemsize
    wide: Any = {"u": U64, "i": I64}[value.dtype.kind]
    moved = value.astype(wide) >> (offset & U32(bits - 1)).astype(wide)
    # The field moves to the upper end and back; of no bits nothing is left.
    distance = wide(64) - np.minimum(width, U32(bits)).astype(wide)
    found = moved << (distance & wide(63)) >> (distance & wide(63))
    return np.where(distance == 64, wide(0), found).astype(value.dtype)


def add_carry(a: Array, b: Array, carry: Array | bool = False) -> tuple[Array, Array]:
    """The sum of u32, and whether it is beyond 32 bits."""
    total = a.astype(U64) + b + carry
    return total.astype(U32), total > 0xFFFFFFFF


def sub_borrow(a: Array, b: Array, borrow: Array | bool = False) -> tuple[Array, Array]:
    """The difference of u32, and whether it is below 0."""
    take = b.astype(U64) + borrow
    return (a.astype(U64) - take).astype(U32), take > a


def high_half(a: Array, b: Array) -> Array:
    """The upper half of a product of two u32 or i32."""
    wide: Any = {"u": U64, "i": I64}[a.dtype.kind]
    return (a.astype(wide) * b.astype(wide) >> wide(32)).astype(a.dtype)


def low24(value: Array) -> Array:
    """The lower 24 bits as a signed number."""
    return (value << I32(8)) >> I32(8)
