"""Vector operations: VOP1, VOP2 and VOP3 except comparisons, and packed ones (VOP3P)."""

from __future__ import annotations

import numpy as np

from qola.emulate.arrays import F16, F32, F64, I16, I32, U16, U32, U64, Array, ArrayFunction
from qola.emulate.numbers import (
    bf16_bits,
    count_ones,
    f16_toward_zero,
    first_one,
    fma_f16,
    fma_f32,
    fma_f64,
    halves,
    high_i32,
    high_u32,
    leading,
    low24,
    maximum,
    median,
    median_float,
    minimum,
    reversed_bits,
    sign_extended,
    to_i32,
    to_integer,
    to_u32,
)
from qola.emulate.table import TYPES, packed, vector, vector_function

_M24 = U32(0xFFFFFF)
_31 = U32(31)
#: For each lane the bits of those below it, in the two halves of a mask.
_BELOW = (
    np.array([[(1 << lane) - 1 for lane in range(64)]], U64).view(U32).reshape(64, 2).T[:, None]
)

vector("V_NOP", "->", lambda: None)
vector("V_MOV_B32", "u32 -> u32", lambda a: a)
vector("V_MOV_B64", "u64 -> u64", lambda a: a)
vector("V_NOT_B32", "u32 -> u32", np.invert)
vector("V_BFREV_B32", "u32 -> u32", reversed_bits)
vector("V_FFBL_B32", "u32 -> u32", lambda a: first_one(a, 32))
vector("V_FFBH_U32", "u32 -> u32", lambda a: leading(a, 32))
vector("V_BCNT_U32_B32", "u32 u32 -> u32", lambda a, b: count_ones(a) + b)

# 32-bit floats
vector("V_ADD_F32", "f32 f32 -> f32", np.add)
vector("V_SUB_F32", "f32 f32 -> f32", np.subtract)
vector("V_SUBREV_F32", "f32 f32 -> f32", lambda a, b: b - a)
vector("V_MUL_F32", "f32 f32 -> f32", np.multiply)
vector("V_MAX_F32", "f32 f32 -> f32", maximum)
vector("V_MIN_F32", "f32 f32 -> f32", minimum)
vector("V_MAX3_F32", "f32 f32 f32 -> f32", lambda a, b, c: maximum(maximum(a, b), c))
vector("V_MIN3_F32", "f32 f32 f32 -> f32", lambda a, b, c: minimum(minimum(a, b), c))
vector("V_MED3_F32", "f32 f32 f32 -> f32", median_float)
vector("V_MAXIMUM3_F32", "f32 f32 f32 -> f32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
vector("V_MINIMUM3_F32", "f32 f32 f32 -> f32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
vector("V_FMA_F32", "f32 f32 f32 -> f32", fma_f32)
vector("V_FMAC_F32", "f32 f32 dst -> f32", fma_f32)
vector("V_FMAMK_F32", "f32 lit f32 -> f32", fma_f32)
vector("V_FMAAK_F32", "f32 f32 lit -> f32", fma_f32)
vector("V_RCP_F32", "f32 -> f32", lambda a: F32(1) / a)
vector("V_RCP_IFLAG_F32", "f32 -> f32", lambda a: F32(1) / a)
vector("V_RSQ_F32", "f32 -> f32", lambda a: (1 / np.sqrt(a.astype(F64))).astype(F32))
vector("V_SQRT_F32", "f32 -> f32", np.sqrt)
vector("V_EXP_F32", "f32 -> f32", np.exp2)
vector("V_LOG_F32", "f32 -> f32", np.log2)
vector("V_SIN_F32", "f32 -> f32", lambda a: np.sin(a.astype(F64) * (2 * np.pi)).astype(F32))
vector("V_COS_F32", "f32 -> f32", lambda a: np.cos(a.astype(F64) * (2 * np.pi)).astype(F32))
vector("V_FLOOR_F32", "f32 -> f32", np.floor)
vector("V_CEIL_F32", "f32 -> f32", np.ceil)
vector("V_TRUNC_F32", "f32 -> f32", np.trunc)
vector("V_RNDNE_F32", "f32 -> f32", np.rint)
vector("V_FRACT_F32", "f32 -> f32", lambda a: a - np.floor(a))
vector("V_FREXP_EXP_I32_F32", "f32 -> i32", lambda a: _frexp(a)[1])
vector("V_FREXP_MANT_F32", "f32 -> f32", lambda a: _frexp(a)[0])
vector("V_LDEXP_F32", "f32 i32 -> f32", np.ldexp)

# 64-bit floats
vector("V_ADD_F64", "f64 f64 -> f64", np.add)
vector("V_MUL_F64", "f64 f64 -> f64", np.multiply)
vector("V_MAX_F64", "f64 f64 -> f64", maximum)
vector("V_MIN_F64", "f64 f64 -> f64", minimum)
vector("V_FMA_F64", "f64 f64 f64 -> f64", fma_f64)
vector("V_FMAC_F64", "f64 f64 dst -> f64", fma_f64)
vector("V_RCP_F64", "f64 -> f64", lambda a: 1 / a)
vector("V_LDEXP_F64", "f64 i32 -> f64", np.ldexp)

# 16-bit floats
vector("V_ADD_F16", "f16 f16 -> f16", np.add)
vector("V_SUB_F16", "f16 f16 -> f16", np.subtract)
vector("V_SUBREV_F16", "f16 f16 -> f16", lambda a, b: b - a)
vector("V_MUL_F16", "f16 f16 -> f16", np.multiply)
vector("V_MAX_F16", "f16 f16 -> f16", maximum)
vector("V_MIN_F16", "f16 f16 -> f16", minimum)
vector("V_FMA_F16", "f16 f16 f16 -> f16", fma_f16)
vector("V_FMAC_F16", "f16 f16 dst -> f16", fma_f16)
vector("V_RCP_F16", "f16 -> f16", lambda a: F16(1) / a)
vector("V_SQRT_F16", "f16 -> f16", np.sqrt)
vector("V_EXP_F16", "f16 -> f16", lambda a: np.exp2(a.astype(F32)).astype(F16))
vector("V_LOG_F16", "f16 -> f16", lambda a: np.log2(a.astype(F32)).astype(F16))
vector("V_PACK_B32_F16", "f16 f16 -> u32", halves)

# 32-bit integers
vector("V_ADD_U32", "u32 u32 -> u32", np.add)
vector("V_SUB_U32", "u32 u32 -> u32", np.subtract)
vector("V_SUBREV_U32", "u32 u32 -> u32", lambda a, b: b - a)
vector("V_ADD_I32", "i32 i32 -> i32", np.add)
vector("V_SUB_I32", "i32 i32 -> i32", np.subtract)
vector("V_ADD3_U32", "u32 u32 u32 -> u32", lambda a, b, c: a + b + c)
vector("V_LSHL_ADD_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a << (b & _31)) + c)
vector("V_ADD_LSHL_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a + b) << (c & _31))
vector("V_LSHL_OR_B32", "u32 u32 u32 -> u32", lambda a, b, c: a << (b & _31) | c)
vector("V_AND_OR_B32", "u32 u32 u32 -> u32", lambda a, b, c: a & b | c)
vector("V_OR3_B32", "u32 u32 u32 -> u32", lambda a, b, c: a | b | c)
vector("V_XAD_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a ^ b) + c)
vector("V_MUL_LO_U32", "u32 u32 -> u32", np.multiply)
vector("V_MUL_HI_U32", "u32 u32 -> u32", high_u32)
vector("V_MUL_HI_I32", "i32 i32 -> i32", high_i32)
vector("V_MUL_U32_U24", "u32 u32 -> u32", lambda a, b: (a & _M24) * (b & _M24))
vector("V_MUL_HI_U32_U24", "u32 u32 -> u32", lambda a, b: high_u32(a & _M24, b & _M24))
vector("V_MUL_I32_I24", "i32 i32 -> i32", lambda a, b: low24(a) * low24(b))
vector("V_MUL_HI_I32_I24", "i32 i32 -> i32", lambda a, b: high_i32(low24(a), low24(b)))
vector("V_MAD_U32_U24", "u32 u32 u32 -> u32", lambda a, b, c: (a & _M24) * (b & _M24) + c)
vector("V_MAD_I32_I24", "i32 i32 i32 -> i32", lambda a, b, c: low24(a) * low24(b) + c)
vector("V_AND_B32", "u32 u32 -> u32", np.bitwise_and)
vector("V_OR_B32", "u32 u32 -> u32", np.bitwise_or)
vector("V_XOR_B32", "u32 u32 -> u32", np.bitwise_xor)
vector("V_XNOR_B32", "u32 u32 -> u32", lambda a, b: ~(a ^ b))
vector("V_LSHLREV_B32", "u32 u32 -> u32", lambda a, b: b << (a & _31))
vector("V_LSHRREV_B32", "u32 u32 -> u32", lambda a, b: b >> (a & _31))
vector("V_ASHRREV_I32", "u32 i32 -> i32", lambda a, b: b >> (a & _31).view(I32))
vector("V_MAX_I32", "i32 i32 -> i32", np.maximum)
vector("V_MIN_I32", "i32 i32 -> i32", np.minimum)
vector("V_MAX_U32", "u32 u32 -> u32", np.maximum)
vector("V_MIN_U32", "u32 u32 -> u32", np.minimum)
vector("V_MAX3_I32", "i32 i32 i32 -> i32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
vector("V_MIN3_I32", "i32 i32 i32 -> i32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
vector("V_MAX3_U32", "u32 u32 u32 -> u32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
vector("V_MIN3_U32", "u32 u32 u32 -> u32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
vector("V_MED3_I32", "i32 i32 i32 -> i32", median)
vector("V_MED3_U32", "u32 u32 u32 -> u32", median)
vector("V_BFI_B32", "u32 u32 u32 -> u32", lambda a, b, c: a & b | ~a & c)
vector("V_MBCNT_LO_U32_B32", "u32 u32 -> u32", lambda a, b: count_ones(a & _BELOW[0]) + b)
vector("V_MBCNT_HI_U32_B32", "u32 u32 -> u32", lambda a, b: count_ones(a & _BELOW[1]) + b)
vector("V_BFM_B32", "u32 u32 -> u32", lambda a, b: ((U32(1) << (a & _31)) - U32(1)) << (b & _31))
vector("V_SAD_U32", "u32 u32 u32 -> u32", lambda a, b, c: _apart(a, b) + c)


def _apart(a: Array, b: Array) -> Array:
    return np.where(a > b, a - b, b - a)


@vector_function("V_SAD_U16", "u32 u32 u32 -> u32")
def _sad_u16(a: Array, b: Array, c: Array) -> Array:
    low = U32(0xFFFF)
    return _apart(a & low, b & low) + _apart(a >> U32(16), b >> U32(16)) + c


@vector_function("V_BFE_U32", "u32 u32 u32 -> u32")
def _bfe_u32(value: Array, offset: Array, width: Array) -> Array:
    return value >> (offset & _31) & ((U32(1) << (width & _31)) - U32(1))


@vector_function("V_BFE_I32", "i32 u32 u32 -> i32")
def _bfe_i32(value: Array, offset: Array, width: Array) -> Array:
    moved = value >> (offset & _31).view(I32)
    return sign_extended(moved.view(U32), width & _31)


@vector_function("V_ALIGNBIT_B32", "u32 u32 u32 -> u32")
def _alignbit(high: Array, low: Array, distance: Array) -> Array:
    wide = high.astype(U64) << U64(32) | low
    return (wide >> (distance & _31)).astype(U32)


@vector_function("V_ALIGNBYTE_B32", "u32 u32 u32 -> u32")
def _alignbyte(high: Array, low: Array, distance: Array) -> Array:
    wide = high.astype(U64) << U64(32) | low
    return (wide >> ((distance & U32(3)) * U32(8))).astype(U32)


@vector_function("V_PERM_B32", "u32 u32 u32 -> u32")
def _perm(high: Array, low: Array, select: Array) -> Array:
    """Each byte of the result is one of eight, a sign spread out, 0x00 or 0xff."""
    wide = high.astype(U64) << U64(32) | low
    result: Array = wide & U64(0)
    for place in (0, 8, 16, 24):
        which = select >> U32(place) & U32(0xFF)
        octet = wide >> (np.minimum(which, U32(7)) << U32(3)) & U64(0xFF)
        if (which > 7).any():
            # 8 to 11 are the signs of bytes 1, 3, 5 and 7.
            sign = wide >> (np.minimum((which & U32(3)) * U32(16) + U32(15), U32(63))) & U64(1)
            octet = np.where(which > 7, sign * U64(0xFF), octet)
            octet = np.where(which == 12, U64(0), np.where(which > 12, U64(0xFF), octet))
        result = result | octet << U64(place)
    return result.astype(U32)


@vector_function("V_BITOP3_B32", "u32 u32 u32 table -> u32")
@vector_function("V_BITOP3_B16", "u16 u16 u16 table -> u16")
def _bitop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Any function of three bits, by its truth table."""
    result = (a | b | c) & a.dtype.type(0)
    for number in range(8):
        if int(table) >> number & 1:
            term = (a if number & 4 else ~a) & (b if number & 2 else ~b)
            result = result | (term & (c if number & 1 else ~c))
    return result


# 16-bit integers
_15 = U16(15)
vector("V_ADD_U16", "u16 u16 -> u16", np.add)
vector("V_SUB_U16", "u16 u16 -> u16", np.subtract)
vector("V_SUBREV_U16", "u16 u16 -> u16", lambda a, b: b - a)
vector("V_MUL_LO_U16", "u16 u16 -> u16", np.multiply)
vector("V_MAD_U16", "u16 u16 u16 -> u16", lambda a, b, c: a * b + c)
vector("V_LSHLREV_B16", "u16 u16 -> u16", lambda a, b: b << (a & _15))
vector("V_LSHRREV_B16", "u16 u16 -> u16", lambda a, b: b >> (a & _15))
vector("V_ASHRREV_I16", "u16 i16 -> i16", lambda a, b: b >> (a & _15).view(np.int16))
vector("V_MAX_I16", "i16 i16 -> i16", np.maximum)
vector("V_MIN_I16", "i16 i16 -> i16", np.minimum)
vector("V_MAX_U16", "u16 u16 -> u16", np.maximum)
vector("V_MIN_U16", "u16 u16 -> u16", np.minimum)
vector("V_MAD_U32_U16", "u16 u16 u32 -> u32", lambda a, b, c: a.astype(U32) * b + c)

# 64-bit integers
_63 = U64(63)
vector("V_LSHLREV_B64", "u32 u64 -> u64", lambda a, b: b << (a & _63))
vector("V_LSHRREV_B64", "u32 u64 -> u64", lambda a, b: b >> (a & _63))
vector("V_ASHRREV_I64", "u32 i64 -> i64", lambda a, b: b >> (a & _63).view(np.int64))
vector("V_LSHL_ADD_U64", "u64 u32 u64 -> u64", lambda a, b, c: (a << (b & U64(7))) + c)


@vector_function("V_MAD_U64_U32", "u32 u32 u64 -> u64 mask")
def _mad_u64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(U64) * b
    total = product + c
    return total, total < product


@vector_function("V_MAD_I64_I32", "i32 i32 i64 -> i64 mask")
def _mad_i64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(np.int64) * b
    total = product + c
    # Bit 64 of the exact sum: its sign, which an overflow turns.
    return total, (total < 0) ^ (((product ^ total) & (c ^ total)) < 0)


# Carries
def _add_carry(a: Array, b: Array, carry: Array | bool = False) -> tuple[Array, Array]:
    total = a.astype(U64) + b + carry
    return total.astype(U32), total > 0xFFFFFFFF


def _sub_borrow(a: Array, b: Array, borrow: Array | bool = False) -> tuple[Array, Array]:
    take = b.astype(U64) + borrow
    return (a.astype(U64) - take).astype(U32), take > a


vector("V_ADD_CO_U32", "u32 u32 -> u32 mask", _add_carry)
vector("V_SUB_CO_U32", "u32 u32 -> u32 mask", _sub_borrow)
vector("V_SUBREV_CO_U32", "u32 u32 -> u32 mask", lambda a, b: _sub_borrow(b, a))
vector("V_ADDC_CO_U32", "u32 u32 mask -> u32 mask", _add_carry)
vector("V_SUBB_CO_U32", "u32 u32 mask -> u32 mask", _sub_borrow)
vector("V_SUBBREV_CO_U32", "u32 u32 mask -> u32 mask", lambda a, b, c: _sub_borrow(b, a, c))
vector("V_CNDMASK_B32", "u32 u32 mask -> u32", lambda a, b, c: np.where(c, b, a))


# Division
def _frexp(value: Array) -> tuple[Array, Array]:
    """Mantissa of 0.5 to 1 and exponent; an infinity or NaN is its own mantissa."""
    mantissa, exponent = np.frexp(value)
    finite = np.isfinite(value)
    return np.where(finite, mantissa, value), np.where(finite, exponent, 0).astype(I32)


#: By type: bits of the mantissa and exponent, the type of the bits.
_LAYOUT = {"f32": (23, 8, U32), "f64": (52, 11, U64)}


def _division(kind: str, scale: int, far: int, fma: ArrayFunction) -> None:
    """The three steps of a division, for one type.

    Args:
        scale: power of two that a value is scaled by.
        far: difference of exponents from which the quotient is near the largest number.
    """
    mantissa, width, unsigned = _LAYOUT[kind]
    float_type = TYPES[kind]
    tiny = 2.0**-126 if kind == "f32" else 2.0**-1022

    def exponent(value: Array) -> Array:
        return (value.view(unsigned) >> unsigned(mantissa) & unsigned(2**width - 1)).astype(I32)

    def denormal(value: Array) -> Array:
        return (value != 0) & (np.abs(value) < tiny)

    def div_scale(value: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
        """Scale numerator or denominator so that the steps do not overflow."""
        value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
        larger, smaller = np.ldexp(value, scale), np.ldexp(value, -scale)
        tiny_inverse = exponent(denominator) >= 2**width - 3
        tiny_quotient = denormal(numerator / denominator)
        of_denominator = np.where(value == denominator, larger, value)
        of_numerator = np.where(value == numerator, larger, value)
        cases = [
            (
                (denominator == 0) | (numerator == 0),
                np.full_like(value, np.nan),
                False,
            ),
            (exponent(numerator) - exponent(denominator) >= far, of_denominator, True),
            (denormal(denominator), larger, False),
            (tiny_inverse & tiny_quotient, of_denominator, True),
            (tiny_inverse, smaller, False),
            (tiny_quotient, of_numerator, True),
            (
                exponent(numerator) <= mantissa if kind == "f32" else exponent(numerator) <= 53,
                larger,
                False,
            ),
        ]
        conditions = [condition for condition, _, _ in cases]
        flags = np.select(conditions, [np.full(value.shape, flag) for *_, flag in cases], False)
        scaled: Array = np.select(conditions, [result for _, result, _ in cases], value)
        return scaled, flags

    def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
        """The last step of the division, which reverses the scaling that its size implies.

        CDNA's pseudocode has one factor, with which no division comes out right; this is RDNA's.
        """
        result = fma(a, b, c)
        factor = np.where(exponent(c) > 2 ** (width - 1) - 1, 2.0**scale, 2.0**-scale)
        return np.where(scaled, result * factor.astype(float_type), result)

    def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
        """The quotient, or the result of a division with a special value."""
        quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
        negative = np.signbit(denominator) ^ np.signbit(numerator)
        special = np.isnan(denominator) | np.isnan(numerator)
        special |= np.isinf(denominator) | np.isinf(numerator)
        special |= (denominator == 0) | (numerator == 0)
        plain = np.where(negative, -np.abs(quotient), np.abs(quotient))
        return np.where(special, numerator / denominator, plain).astype(float_type)

    name = kind.upper()
    vector(f"V_DIV_SCALE_{name}", f"{kind} {kind} {kind} -> {kind} mask", div_scale)
    vector(f"V_DIV_FMAS_{name}", f"{kind} {kind} {kind} vcc -> {kind}", div_fmas)
    vector(f"V_DIV_FIXUP_{name}", f"{kind} {kind} {kind} -> {kind}", div_fixup)


_division("f32", 64, 96, fma_f32)
_division("f64", 128, 768, fma_f64)


# Conversions
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


# Packed operations: two values per lane, selected by op_sel
packed("V_PK_ADD_F32", "f32 f32 -> f32", np.add)
packed("V_PK_MUL_F32", "f32 f32 -> f32", np.multiply)
packed("V_PK_FMA_F32", "f32 f32 f32 -> f32", fma_f32)
packed("V_PK_MOV_B32", "u32 u32 -> u32", lambda a, b: (a, b))

packed("V_PK_ADD_F16", "f16 f16 -> f16", np.add)
packed("V_PK_MUL_F16", "f16 f16 -> f16", np.multiply)
packed("V_PK_FMA_F16", "f16 f16 f16 -> f16", fma_f16)
packed("V_PK_MAX_F16", "f16 f16 -> f16", maximum)
packed("V_PK_MIN_F16", "f16 f16 -> f16", minimum)

packed("V_PK_ADD_U16", "u16 u16 -> u16", np.add)
packed("V_PK_SUB_U16", "u16 u16 -> u16", np.subtract)
packed("V_PK_ADD_I16", "i16 i16 -> i16", np.add)
packed("V_PK_SUB_I16", "i16 i16 -> i16", np.subtract)
packed("V_PK_MUL_LO_U16", "u16 u16 -> u16", np.multiply)
packed("V_PK_MAD_U16", "u16 u16 u16 -> u16", lambda a, b, c: a * b + c)
packed("V_PK_MAD_I16", "i16 i16 i16 -> i16", lambda a, b, c: a * b + c)
packed("V_PK_MAX_U16", "u16 u16 -> u16", np.maximum)
packed("V_PK_MIN_U16", "u16 u16 -> u16", np.minimum)
packed("V_PK_MAX_I16", "i16 i16 -> i16", np.maximum)
packed("V_PK_MIN_I16", "i16 i16 -> i16", np.minimum)
packed("V_PK_LSHLREV_B16", "u16 u16 -> u16", lambda a, b: b << (a & _15))
packed("V_PK_LSHRREV_B16", "u16 u16 -> u16", lambda a, b: b >> (a & _15))
packed("V_PK_ASHRREV_I16", "u16 i16 -> i16", lambda a, b: b >> (a & _15).view(I16))
