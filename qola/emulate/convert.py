"""Conversions between types of numbers."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import F16, F32, F64, I16, I32, U16, U32, Array
from qola.emulate.numbers import (
    bf16_bits,
    f16_toward_zero,
    halves,
    to_i32,
    to_integer,
    to_u32,
)
from qola.emulate.table import vector, vector_function

vector("V_CVT_F32_U32", "u32 -> f32", lambda a: a.astype(F32))
vector("V_CVT_F32_I32", "i32 -> f32", lambda a: a.astype(F32))
vector("V_CVT_U32_F32", "f32 -> u32", to_u32)
vector("V_CVT_I32_F32", "f32 -> i32", to_i32)
vector("V_CVT_RPI_I32_F32", "f32 -> i32", lambda a: to_i32(np.floor(a.astype(F64) + 0.5)))
vector("V_CVT_FLR_I32_F32", "f32 -> i32", lambda a: to_i32(np.floor(a)))
vector("V_CVT_F16_F32", "f32 -> f16", lambda a: a.astype(F16))
vector("V_CVT_F32_F16", "f16 -> f32", lambda a: a.astype(F32))
vector("V_CVT_F16_U16", "u16 -> f16", lambda a: a.astype(F16))
vector("V_CVT_F16_I16", "i16 -> f16", lambda a: a.astype(F16))
vector("V_CVT_U16_F16", "f16 -> u16", lambda a: to_integer(a, 0, 2**16 - 1, U16))
vector("V_CVT_I16_F16", "f16 -> i16", lambda a: to_integer(a, -(2**15), 2**15 - 1, I16))
vector("V_CVT_F64_F32", "f32 -> f64", lambda a: a.astype(F64))
vector("V_CVT_F32_F64", "f64 -> f32", lambda a: a.astype(F32))
vector("V_CVT_F64_I32", "i32 -> f64", lambda a: a.astype(F64))
vector("V_CVT_F64_U32", "u32 -> f64", lambda a: a.astype(F64))
vector("V_CVT_I32_F64", "f64 -> i32", to_i32)
vector("V_CVT_U32_F64", "f64 -> u32", to_u32)
for _byte in range(4):
    vector(
        f"V_CVT_F32_UBYTE{_byte}",
        "u32 -> f32",
        lambda a, distance=8 * _byte: (a >> U32(distance) & U32(0xFF)).astype(F32),
    )


@vector_function("V_CVT_PKRTZ_F16_F32", "f32 f32 -> u32")
def _pkrtz(low: Array, high: Array) -> Array:
    return halves(f16_toward_zero(low), f16_toward_zero(high))


@vector_function("V_CVT_PK_F16_F32", "f32 f32 -> u32")
def _pk_f16(low: Array, high: Array) -> Array:
    return halves(low.astype(F16), high.astype(F16))


@vector_function("V_CVT_PK_BF16_F32", "f32 f32 -> u32")
def _pk_bf16(low: Array, high: Array) -> Array:
    return halves(bf16_bits(low), bf16_bits(high))


@vector_function("V_CVT_PK_U16_U32", "u32 u32 -> u32")
def _pk_u16(low: Array, high: Array) -> Array:
    limit = U32(0xFFFF)
    return halves(np.minimum(low, limit).astype(U16), np.minimum(high, limit).astype(U16))


@vector_function("V_CVT_PK_I16_I32", "i32 i32 -> u32")
def _pk_i16(low: Array, high: Array) -> Array:
    ends = I32(-(2**15)), I32(2**15 - 1)
    return halves(np.clip(low, *ends).astype(I16), np.clip(high, *ends).astype(I16))
