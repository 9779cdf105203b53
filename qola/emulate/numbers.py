"""Arithmetic that NumPy has no function for: fused, rounded and saturated as the ISA says."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import F16, F32, F64, I32, I64, U8, U16, U32, U64, Array

_NAN_BITS = 0x7FC00000


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add: the product is exact in f64, the sum is rounded to f64, then to f32."""
    return (a.astype(F64) * b + c).astype(F32)


def fma_f16(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add: product and sum of f16 are exact in f64."""
    return (a.astype(F64) * b + c).astype(F16)


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """A fused multiply-add by the error terms of product and sum."""
    product = a * b
    # The error of a product by halves of 26 bits (Dekker), that of a sum by Knuth.
    a_high, b_high = _upper(a), _upper(b)
    a_low, b_low = a - a_high, b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    total = product + c
    back = total - product
    rest = (product - (total - back)) + (c - back)
    exact = total + (rest + error)
    # Halves of very large numbers are infinite: the plain result is as good as it gets.
    return np.where(np.isfinite(exact), exact, total)


def _upper(value: Array) -> Array:
    scaled = value * F64(2**27 + 1)
    upper: Array = scaled - (scaled - value)
    return upper


def maximum(a: Array, b: Array) -> Array:
    """The larger; where one is not a number, the other."""
    return np.fmax(a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller; where one is not a number, the other."""
    return np.fmin(a, b)


def median(a: Array, b: Array, c: Array) -> Array:
    """The middle of three integers, or of three floats of which the smallest counts for a NaN."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.maximum(low, np.minimum(high, c))


def median_float(a: Array, b: Array, c: Array) -> Array:
    """The middle of three floats; where one is not a number, the smallest of the others."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, np.fmin(np.fmin(a, b), c), median(a, b, c))


def to_integer(value: Array, low: int, high: int, kind: type[np.generic]) -> Array:
    """Round towards zero and saturate; NaN becomes 0."""
    whole = np.nan_to_num(np.trunc(value.astype(F64)), nan=0.0, posinf=high, neginf=low)
    return np.clip(whole, low, high).astype(I64).astype(kind)


def to_u32(value: Array) -> Array:
    """Convert to u32."""
    return to_integer(value, 0, 2**32 - 1, U32)


def to_i32(value: Array) -> Array:
    """Convert to i32."""
    return to_integer(value, -(2**31), 2**31 - 1, I32)


def f16_toward_zero(value: Array) -> Array:
    """Convert f32 to f16, towards zero: the nearest f16, and one less where that is larger."""
    near = value.astype(F16)
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


def first_one(value: Array, width: int) -> Array:
    """The lowest bit that is set; -1 for none."""
    wide = value.astype(U64)
    lowest = wide & (~wide + U64(1))
    found = count_ones(lowest - U64(1))
    return np.where(wide == 0, U32(0xFFFFFFFF), found).astype(U32)


def leading(value: Array, width: int) -> Array:
    """Zeros above the highest bit that is set; -1 for none."""
    wide = value.astype(U64)
    # Fill all bits below the highest: their count is its place.
    for distance in (1, 2, 4, 8, 16, 32):
        wide = wide | wide >> U64(distance)
    return np.where(value == 0, U32(0xFFFFFFFF), U32(width) - count_ones(wide)).astype(U32)


def reversed_bits(value: Array) -> Array:
    """The bits in the other order."""
    width = value.dtype.itemsize
    octets = np.ascontiguousarray(value).view(U8).reshape((*value.shape, width))
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view(value.dtype)[..., 0]


def sign_extended(value: Array, width: Array | int) -> Array:
    """A field of some bits, as i32: its highest bit is the sign."""
    distance = (U32(32) - np.asarray(width, U32)) & U32(31)
    extended = (value.astype(U32) << distance).view(I32) >> distance.view(I32)
    return np.where(np.asarray(width) == 0, I32(0), extended)


def high_u32(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    return (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U32)


def high_i32(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    return (a.astype(I64) * b.astype(I64) >> I64(32)).astype(I32)


def low24(value: Array) -> Array:
    """The lower 24 bits as a signed number."""
    return (value << I32(8)) >> I32(8)
