"""Vector operations (VOP1, VOP2, VOP3 and VOPC), and packed ones (VOP3P)."""

from __future__ import annotations

import numpy as np

from gfxemu.arrays import F16, F32, F64, I16, I32, U16, U32, U64, Array, ArrayFunction
from gfxemu.numbers import (
    add_carry,
    bf16_bits,
    count_ones,
    exact_fma,
    extracted,
    f16_toward_zero,
    first_one,
    fma,
    fract,
    halves,
    high_half,
    leading,
    leading_signed,
    log_of_2,
    low24,
    median,
    median_float,
    power_of_2,
    reversed_bits,
    sub_borrow,
    sum_to_odd,
    to_f16,
    to_integer,
)
from gfxemu.table import TYPES, VECTOR, packed, vector

_M24 = U32(0xFFFFFF)
_15, _31, _63 = U16(15), U32(31), U64(63)
#: For each lane the bits of those below it, in the two halves of a mask.
_BELOW = (
    np.array([[(1 << lane) - 1 for lane in range(64)]], U64).view(U32).reshape(64, 2).T[:, None]
)


def bits_below(name: str, lanes: int) -> ArrayFunction:
    """Return the function of V_MBCNT_LO_U32_B32 or V_MBCNT_HI_U32_B32 in waves of some lanes."""
    below = _BELOW[int("HI" in name), :, :lanes]
    return lambda a, b: count_ones(a & below) + b


def _turn(revolutions: Array) -> Array:
    """Return an angle of at most half a revolution, in radians."""
    wide = revolutions.astype(F64)
    return (wide - np.rint(wide)) * (2 * np.pi)


#: Operations that round to an integer, by name.
ROUNDINGS: dict[str, ArrayFunction] = {
    **{"FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc, "RNDNE": np.rint}
}
# Operations of several types: table, prefix and type, then names
_BINARY: dict[str, ArrayFunction] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "SUBREV": lambda a, b: b - a,
    "MUL": np.multiply,
    "MUL_LO": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
}
for _enter, _prefix, _type, _names in (
    (vector, "V", "f16", "ADD SUB SUBREV MUL MAX MIN"),
    (vector, "V", "f32", "ADD SUB SUBREV MUL MAX MIN"),
    (vector, "V", "f64", "ADD MUL MAX MIN"),
    (vector, "V", "u16", "ADD SUB SUBREV MUL_LO MAX MIN"),
    (vector, "V", "i16", "MAX MIN"),
    (vector, "V", "u32", "ADD SUB SUBREV MUL_LO MAX MIN"),
    (vector, "V", "i32", "ADD SUB MAX MIN"),
    (packed, "V_PK", "f16", "ADD MUL MAX MIN"),
    (packed, "V_PK", "f32", "ADD MUL"),
    (packed, "V_PK", "u16", "ADD SUB MUL_LO MAX MIN"),
    (packed, "V_PK", "i16", "ADD SUB MAX MIN"),
):
    # Of a NaN and a number the number.
    _larger = {"MAX": np.fmax, "MIN": np.fmin} if _type[0] == "f" else {}
    for _name in _names.split():
        _function = _larger.get(_name, _BINARY[_name])
        _enter(f"{_prefix}_{_name}_{_type.upper()}", f"{_type} {_type} -> {_type}", _function)
for _type in ("f16", "f32", "f64"):
    vector(f"V_FMA_{_type.upper()}", f"{_type} {_type} {_type} -> {_type}", fma)
    vector(f"V_FMAC_{_type.upper()}", f"{_type} {_type} dst -> {_type}", fma)
    if _type != "f64":
        packed(f"V_PK_FMA_{_type.upper()}", f"{_type} {_type} {_type} -> {_type}", fma)
for _type in ("f32", "i32", "u32"):
    _kinds = f"{_type} {_type} {_type} -> {_type}"
    vector(f"V_MAX3_{_type.upper()}", _kinds, lambda a, b, c: np.fmax(np.fmax(a, b), c))
    vector(f"V_MIN3_{_type.upper()}", _kinds, lambda a, b, c: np.fmin(np.fmin(a, b), c))
for _enter, _prefix, _width, _count, _mask in (
    (vector, "V", "16", "u16", _15),
    (vector, "V", "32", "u32", _31),
    (vector, "V", "64", "u32", _63),
    (packed, "V_PK", "16", "u16", _15),
):
    _u, _i = f"u{_width}", f"i{_width}"
    for _name, _type, _function in (
        (f"LSHLREV_B{_width}", _u, lambda a, b, mask=_mask: b << (a & mask)),
        (f"LSHRREV_B{_width}", _u, lambda a, b, mask=_mask: b >> (a & mask)),
        (f"ASHRREV_I{_width}", _i, lambda a, b, mask=_mask: b >> (a & mask).view(b.dtype)),
    ):
        _enter(f"{_prefix}_{_name}", f"{_count} {_type} -> {_type}", _function)

vector("V_NOP", "->", lambda: None)
vector("V_MOV_B32", "u32 -> u32", lambda a: a)
vector("V_MOV_B64", "u64 -> u64", lambda a: a)
vector("V_NOT_B32", "u32 -> u32", np.invert)
vector("V_BFREV_B32", "u32 -> u32", reversed_bits)
vector("V_FFBL_B32", "u32 -> u32", first_one)
vector("V_FFBH_U32", "u32 -> u32", leading)
vector("V_BCNT_U32_B32", "u32 u32 -> u32", lambda a, b: count_ones(a) + b)

# Floats
vector("V_MED3_F32", "f32 f32 f32 -> f32", median_float)
vector("V_MAXIMUM3_F32", "f32 f32 f32 -> f32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
vector("V_MINIMUM3_F32", "f32 f32 f32 -> f32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
vector("V_FMAMK_F32", "f32 lit f32 -> f32", fma)
vector("V_FMAAK_F32", "f32 f32 lit -> f32", fma)
# CDNA2's own: the product is rounded, too.
vector("V_MAD_F32", "f32 f32 f32 -> f32", lambda a, b, c: a * b + c)
vector("V_MAC_F32", "f32 f32 dst -> f32", lambda a, b, c: a * b + c)
vector("V_MADMK_F32", "f32 lit f32 -> f32", lambda a, b, c: a * b + c)
vector("V_MADAK_F32", "f32 f32 lit -> f32", lambda a, b, c: a * b + c)
vector("V_RCP_F16", "f16 -> f16", lambda a: F16(1) / a)
vector("V_RCP_F32", "f32 -> f32", lambda a: F32(1) / a)
vector("V_RCP_IFLAG_F32", "f32 -> f32", lambda a: F32(1) / a)
vector("V_RCP_F64", "f64 -> f64", lambda a: 1 / a)
vector("V_RSQ_F32", "f32 -> f32", lambda a: (1 / np.sqrt(a.astype(F64))).astype(F32))
vector("V_SQRT_F16", "f16 -> f16", np.sqrt)
vector("V_SQRT_F32", "f32 -> f32", np.sqrt)
vector("V_EXP_F16", "f16 -> f16", lambda a: np.exp2(a.astype(F32)).astype(F16))
vector("V_EXP_F32", "f32 -> f32", power_of_2)
vector("V_LOG_F16", "f16 -> f16", lambda a: np.log2(a.astype(F32)).astype(F16))
vector("V_LOG_F32", "f32 -> f32", log_of_2)
vector("V_SIN_F32", "f32 -> f32", lambda a: np.sin(_turn(a)).astype(F32))
vector("V_COS_F32", "f32 -> f32", lambda a: np.cos(_turn(a)).astype(F32))
for _type in ("f16", "f32", "f64"):
    for _name, _function in {**ROUNDINGS, "FRACT": fract}.items():
        vector(f"V_{_name}_{_type.upper()}", f"{_type} -> {_type}", _function)
for _type in ("f16", "f32", "f64"):
    _whole = "i16" if _type == "f16" else "i32"
    _exponent = lambda a, whole=TYPES[_whole]: _frexp(a)[1].astype(whole)  # noqa: E731
    vector(f"V_FREXP_EXP_{_whole.upper()}_{_type.upper()}", f"{_type} -> {_whole}", _exponent)
    vector(f"V_FREXP_MANT_{_type.upper()}", f"{_type} -> {_type}", lambda a: _frexp(a)[0])
vector("V_LDEXP_F32", "f32 i32 -> f32", np.ldexp)
vector("V_LDEXP_F64", "f64 i32 -> f64", np.ldexp)

# Integers
vector("V_ADD3_U32", "u32 u32 u32 -> u32", lambda a, b, c: a + b + c)
vector("V_LSHL_ADD_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a << (b & _31)) + c)
vector("V_LSHL_ADD_U64", "u64 u32 u64 -> u64", lambda a, b, c: (a << (b & U64(7))) + c)
vector("V_ADD_LSHL_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a + b) << (c & _31))
vector("V_LSHL_OR_B32", "u32 u32 u32 -> u32", lambda a, b, c: a << (b & _31) | c)
vector("V_AND_OR_B32", "u32 u32 u32 -> u32", lambda a, b, c: a & b | c)
vector("V_OR3_B32", "u32 u32 u32 -> u32", lambda a, b, c: a | b | c)
vector("V_XAD_U32", "u32 u32 u32 -> u32", lambda a, b, c: (a ^ b) + c)
vector("V_MUL_HI_U32", "u32 u32 -> u32", high_half)
vector("V_MUL_HI_I32", "i32 i32 -> i32", high_half)
vector("V_MUL_U32_U24", "u32 u32 -> u32", lambda a, b: (a & _M24) * (b & _M24))
vector("V_MUL_HI_U32_U24", "u32 u32 -> u32", lambda a, b: high_half(a & _M24, b & _M24))
vector("V_MUL_I32_I24", "i32 i32 -> i32", lambda a, b: low24(a) * low24(b))
vector("V_MUL_HI_I32_I24", "i32 i32 -> i32", lambda a, b: high_half(low24(a), low24(b)))
vector("V_MAD_U32_U24", "u32 u32 u32 -> u32", lambda a, b, c: (a & _M24) * (b & _M24) + c)
vector("V_MAD_I32_I24", "i32 i32 i32 -> i32", lambda a, b, c: low24(a) * low24(b) + c)
vector("V_MAD_U32_U16", "u16 u16 u32 -> u32", lambda a, b, c: a.astype(U32) * b + c)
vector("V_MAD_U16", "u16 u16 u16 -> u16", lambda a, b, c: a * b + c)
packed("V_PK_MAD_U16", "u16 u16 u16 -> u16", lambda a, b, c: a * b + c)
packed("V_PK_MAD_I16", "i16 i16 i16 -> i16", lambda a, b, c: a * b + c)
vector("V_AND_B32", "u32 u32 -> u32", np.bitwise_and)
vector("V_OR_B32", "u32 u32 -> u32", np.bitwise_or)
vector("V_XOR_B32", "u32 u32 -> u32", np.bitwise_xor)
vector("V_XNOR_B32", "u32 u32 -> u32", lambda a, b: ~(a ^ b))
vector("V_MED3_I32", "i32 i32 i32 -> i32", median)
vector("V_MED3_U32", "u32 u32 u32 -> u32", median)
vector("V_BFI_B32", "u32 u32 u32 -> u32", lambda a, b, c: a & b | ~a & c)
for _name in ("V_MBCNT_LO_U32_B32", "V_MBCNT_HI_U32_B32"):
    vector(_name, "u32 u32 -> u32", bits_below(_name, 64))
vector("V_BFM_B32", "u32 u32 -> u32", lambda a, b: ((U32(1) << (a & _31)) - U32(1)) << (b & _31))
vector("V_CNDMASK_B32", "u32 u32 mask -> u32", lambda a, b, c: np.where(c, b, a))
vector("V_PACK_B32_F16", "f16 f16 -> u32", halves)
packed("V_PK_MOV_B32", "u32 u32 -> u32", lambda a, b: (a, b))


def _apart(a: Array, b: Array) -> Array:
    return np.where(a > b, a - b, b - a)


def _sad_u16(a: Array, b: Array, c: Array) -> Array:
    low = U32(0xFFFF)
    return _apart(a & low, b & low) + _apart(a >> U32(16), b >> U32(16)) + c


def _shifted(high: Array, low: Array, distance: Array) -> Array:
    """Shift the 64 bits of two registers to the right, and return the lower 32."""
    return ((high.astype(U64) << U64(32) | low) >> distance).astype(U32)


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


def _bitop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Any function of three bits, by its truth table."""
    result = (a | b | c) & a.dtype.type(0)
    for number in range(8):
        if int(table) >> number & 1:
            term = (a if number & 4 else ~a) & (b if number & 2 else ~b)
            result = result | (term & (c if number & 1 else ~c))
    return result


def _mad_u64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(U64) * b
    total = product + c
    return total, total < product


def _mad_i64(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(np.int64) * b
    total = product + c
    # Bit 64 of the exact sum: its sign, which an overflow turns.
    return total, (total < 0) ^ (((product ^ total) & (c ^ total)) < 0)


vector("V_SAD_U32", "u32 u32 u32 -> u32", lambda a, b, c: _apart(a, b) + c)
vector("V_SAD_U16", "u32 u32 u32 -> u32", _sad_u16)
vector(
    *("V_BFE_U32", "u32 u32 u32 -> u32"),
    lambda a, b, c: a >> (b & _31) & ((U32(1) << (c & _31)) - U32(1)),
)
vector("V_BFE_I32", "i32 u32 u32 -> i32", lambda a, b, c: extracted(a, b, c & _31))
vector("V_ALIGNBIT_B32", "u32 u32 u32 -> u32", lambda a, b, c: _shifted(a, b, c & _31))
vector("V_ALIGNBYTE_B32", "u32 u32 u32 -> u32", lambda a, b, c: _shifted(a, b, c % 4 * U32(8)))
vector("V_PERM_B32", "u32 u32 u32 -> u32", _perm)
vector("V_BITOP3_B32", "u32 u32 u32 table -> u32", _bitop3)
vector("V_BITOP3_B16", "u16 u16 u16 table -> u16", _bitop3)
vector("V_MAD_U64_U32", "u32 u32 u64 -> u64 mask", _mad_u64)
vector("V_MAD_I64_I32", "i32 i32 i64 -> i64 mask", _mad_i64)
vector("V_ADD_CO_U32", "u32 u32 -> u32 mask", add_carry)
vector("V_SUB_CO_U32", "u32 u32 -> u32 mask", sub_borrow)
vector("V_SUBREV_CO_U32", "u32 u32 -> u32 mask", lambda a, b: sub_borrow(b, a))
vector("V_ADDC_CO_U32", "u32 u32 mask -> u32 mask", add_carry)
vector("V_SUBB_CO_U32", "u32 u32 mask -> u32 mask", sub_borrow)
vector("V_SUBBREV_CO_U32", "u32 u32 mask -> u32 mask", lambda a, b, c: sub_borrow(b, a, c))


# Division
def _frexp(value: Array) -> tuple[Array, Array]:
    """Mantissa of 0.5 to 1 and exponent; an infinity or NaN is its own mantissa."""
    mantissa, exponent = np.frexp(value)
    finite = np.isfinite(value)
    return np.where(finite, mantissa, value), np.where(finite, exponent, 0).astype(I32)


#: By type: bits of the mantissa and exponent, the type of the bits.
_LAYOUT = {"f16": (10, 5, U16), "f32": (23, 8, U32), "f64": (52, 11, U64)}


def _fixed_up(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """The quotient with its sign, or the result of a division with a special value."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    special = ~np.isfinite(denominator) | ~np.isfinite(numerator)
    special |= (denominator == 0) | (numerator == 0)
    plain = np.where(negative, -np.abs(quotient), np.abs(quotient))
    return np.where(special, numerator / denominator, plain)


def _division(kind: str, scale: int, far: int) -> None:
    """The three steps of a division, for one type.

    LLVM emits them for a correctly rounded division. The vendor's pseudocode scales a large
    denominator up instead of down, and passes over quotients that are too large.

    Args:
        scale: power of two that a value is scaled by.
        far: difference of exponents from which the quotient is near the largest number.
    """
    mantissa, width, unsigned = _LAYOUT[kind]
    float_type = TYPES[kind]
    tiny = 2.0**-126 if kind == "f32" else 2.0**-1022
    # Exponents of quotients that are infinite, and of those that are 0.
    largest = 2 ** (width - 1)
    smallest = -largest - mantissa + 1

    def exponent(value: Array) -> Array:
        return (value.view(unsigned) >> unsigned(mantissa) & unsigned(2**width - 1)).astype(I32)

    def div_scale(value: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
        """Scale numerator or denominator so that the steps do not overflow."""
        value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
        larger, smaller = np.ldexp(value, scale), np.ldexp(value, -scale)
        tiny_inverse = exponent(denominator) >= 2**width - 3
        tiny_quotient = np.abs(numerator / denominator) < tiny
        is_denominator, is_numerator = value == denominator, value == numerator
        cases = [
            ((denominator == 0) | (numerator == 0), np.full_like(value, np.nan), False),
            (
                exponent(numerator) - exponent(denominator) >= far,
                np.where(is_denominator, larger, value),
                True,
            ),
            (np.abs(denominator) < tiny, larger, False),
            (tiny_inverse & tiny_quotient, np.where(is_denominator, smaller, value), True),
            (tiny_inverse, smaller, False),
            (tiny_quotient, np.where(is_numerator, larger, value), True),
            (exponent(numerator) <= mantissa + (kind == "f64"), larger, False),
        ]
        conditions = [condition for condition, _, _ in cases]
        flags = np.select(conditions, [np.full(value.shape, flag) for *_, flag in cases], False)
        scaled: Array = np.select(conditions, [result for _, result, _ in cases], value)
        return scaled, flags

    def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
        """The last step of the division, which reverses the scaling that its size implies.

        CDNA's pseudocode has one factor, with which no division comes out right; this is RDNA's.
        """
        factor = np.where(exponent(c) > 2 ** (width - 1) - 1, 2.0**scale, 2.0**-scale)
        factor = np.where(scaled, factor, 1.0)
        if kind == "f64":
            return exact_fma(a, b, c, factor)
        return (sum_to_odd(a.astype(F64) * b, c) * factor).astype(float_type)

    def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
        """The quotient, or the result of a division with a special value or a far exponent."""
        size = np.abs(quotient)
        difference = np.frexp(numerator)[1] - np.frexp(denominator)[1]
        size = np.where(difference > largest, float_type(np.inf), size)
        size = np.where(difference < smallest, float_type(0), size)
        return _fixed_up(size, denominator, numerator)

    name = kind.upper()
    vector(f"V_DIV_SCALE_{name}", f"{kind} {kind} {kind} -> {kind} mask", div_scale)
    vector(f"V_DIV_FMAS_{name}", f"{kind} {kind} {kind} vcc -> {kind}", div_fmas)
    vector(f"V_DIV_FIXUP_{name}", f"{kind} {kind} {kind} -> {kind}", div_fixup)


vector("V_DIV_FIXUP_F16", "f16 f16 f16 -> f16", _fixed_up)
_division("f32", 64, 96)
_division("f64", 128, 768)

# Conversions
for _to, _from in (
    *(("f32", "u32"), ("f32", "i32"), ("f32", "f16"), ("f32", "f64")),
    *(("f16", "u16"), ("f16", "i16"), ("f64", "f32"), ("f64", "i32"), ("f64", "u32")),
    *(("u32", "f32"), ("i32", "f32"), ("u32", "f64"), ("i32", "f64"), ("u16", "f16")),
    ("i16", "f16"),
):
    _cast: ArrayFunction = np.ndarray.astype if _to[0] == "f" else to_integer
    vector(
        f"V_CVT_{_to.upper()}_{_from.upper()}",
        f"{_from} -> {_to}",
        lambda a, cast=_cast, to=TYPES[_to]: cast(a, to),
    )
vector("V_CVT_F16_F32", "f32 -> f16", to_f16)
vector("V_CVT_RPI_I32_F32", "f32 -> i32", lambda a: to_integer(np.floor(a.astype(F64) + 0.5), I32))
vector("V_CVT_FLR_I32_F32", "f32 -> i32", lambda a: to_integer(np.floor(a), I32))
for _byte in range(4):
    vector(
        f"V_CVT_F32_UBYTE{_byte}",
        "u32 -> f32",
        lambda a, distance=8 * _byte: (a >> U32(distance) & U32(0xFF)).astype(F32),
    )
for _name, _from, _convert in (
    ("PKRTZ_F16_F32", "f32", f16_toward_zero),
    ("PK_F16_F32", "f32", to_f16),
    ("PK_BF16_F32", "f32", bf16_bits),
    ("PK_U16_U32", "u32", lambda a: np.minimum(a, U32(0xFFFF)).astype(U16)),
    ("PK_I16_I32", "i32", lambda a: np.clip(a, -(2**15), 2**15 - 1).astype(I16)),
):
    vector(
        f"V_CVT_{_name}",
        f"{_from} {_from} -> u32",
        lambda a, b, convert=_convert: halves(convert(a), convert(b)),
    )


# Comparisons (VOPC), made from their names: a bit a lane; V_CMPX writes EXEC too
def _unordered(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


_INTEGER: dict[str, ArrayFunction] = {
    "F": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "LT": np.less,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GT": np.greater,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "T": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}
FLOAT_COMPARISONS: dict[str, ArrayFunction] = {
    "F": _INTEGER["F"],
    "LT": np.less,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GT": np.greater,
    # Less or greater: not so for NaNs, for which "not equal" (NEQ) holds.
    "LG": lambda a, b: (a < b) | (a > b),
    "GE": np.greater_equal,
    "O": lambda a, b: ~_unordered(a, b),
    "U": _unordered,
    "NGE": lambda a, b: ~(a >= b),
    "NLG": lambda a, b: ~((a < b) | (a > b)),
    "NGT": lambda a, b: ~(a > b),
    "NLE": lambda a, b: ~(a <= b),
    "NEQ": np.not_equal,
    "NLT": lambda a, b: ~(a < b),
    "TRU": _INTEGER["T"],
}

for _type in TYPES:
    for _name, _function in (FLOAT_COMPARISONS if _type[0] == "f" else _INTEGER).items():
        for _prefix in ("V_CMP", "V_CMPX"):
            vector(f"{_prefix}_{_name}_{_type.upper()}", f"{_type} {_type} -> mask", _function)


def _classifier(kind: str) -> ArrayFunction:
    mantissa, _, unsigned = _LAYOUT[kind]

    def classify(value: Array, wanted: Array) -> Array:
        bits = value.view(unsigned)
        negative = np.signbit(value)
        quiet = (bits >> unsigned(mantissa - 1) & unsigned(1)).astype(bool)
        tiny = np.finfo(value.dtype).tiny
        number = np.select(
            [
                np.isnan(value) & ~quiet,
                np.isnan(value),
                np.isinf(value),
                np.abs(value) >= tiny,
                value != 0,
            ],
            [0, 1, np.where(negative, 2, 9), np.where(negative, 3, 8), np.where(negative, 4, 7)],
            np.where(negative, 5, 6),
        )
        return (wanted >> number.astype(U32) & U32(1)).astype(bool)

    return classify


for _type in _LAYOUT:
    for _prefix in ("V_CMP", "V_CMPX"):
        vector(f"{_prefix}_CLASS_{_type.upper()}", f"{_type} u32 -> mask", _classifier(_type))


# RDNA4's own
def _zero_wins(function: ArrayFunction) -> ArrayFunction:
    """Of a product with 0, whatever the other factor is, 0 remains (rules of DirectX 9)."""

    def run(a: Array, b: Array, *rest: Array) -> Array:
        none = (a == 0) | (b == 0)
        zero = a.dtype.type(0)
        return function(np.where(none, zero, a), np.where(none, zero, b), *rest)

    return run


vector("V_XOR3_B32", "u32 u32 u32 -> u32", lambda a, b, c: a ^ b ^ c)
vector("V_MOV_B16", "u16 -> u16", lambda a: a)
vector("V_NOT_B16", "u16 -> u16", np.invert)
vector("V_CNDMASK_B16", "u16 u16 mask -> u16", lambda a, b, c: np.where(c, b, a))
for _name, _function in (
    *(("AND", np.bitwise_and), ("OR", np.bitwise_or), ("XOR", np.bitwise_xor)),
):
    vector(f"V_{_name}_B16", "u16 u16 -> u16", _function)
vector("V_FFBH_I32", "i32 -> u32", leading_signed)
vector("V_FMAMK_F16", "f16 lit f16 -> f16", fma)
vector("V_FMAAK_F16", "f16 f16 lit -> f16", fma)
vector("V_LDEXP_F16", "f16 i16 -> f16", np.ldexp)
vector("V_MUL_DX9_ZERO_F32", "f32 f32 -> f32", _zero_wins(np.multiply))
vector("V_FMA_DX9_ZERO_F32", "f32 f32 f32 -> f32", _zero_wins(fma))
vector("V_CVT_I32_I16", "i16 -> i32", lambda a: a.astype(I32))
vector("V_CVT_U32_U16", "u16 -> u32", lambda a: a.astype(U32))
vector("V_MAD_I16", "i16 i16 i16 -> i16", lambda a, b, c: a * b + c)
vector("V_MAD_I32_I16", "i16 i16 i32 -> i32", lambda a, b, c: a.astype(I32) * b + c)
vector("V_ADD_I16", "i16 i16 -> i16", np.add)
vector("V_SUB_I16", "i16 i16 -> i16", np.subtract)
for _type in ("f16", "f64"):
    vector(f"V_RSQ_{_type.upper()}", f"{_type} -> {_type}", lambda a: a.dtype.type(1) / np.sqrt(a))
vector("V_SQRT_F64", "f64 -> f64", np.sqrt)
for _type in ("f16", "f32", "i32", "u32", "i16", "u16"):
    _kinds = f"{_type} {_type} {_type} -> {_type}"
    if _type[1:] == "16":
        vector(f"V_MAX3_{_type.upper()}", _kinds, lambda a, b, c: np.fmax(np.fmax(a, b), c))
        vector(f"V_MIN3_{_type.upper()}", _kinds, lambda a, b, c: np.fmin(np.fmin(a, b), c))
        vector(f"V_MED3_{_type.upper()}", _kinds, median_float if _type == "f16" else median)
    if _type not in ("i16", "u16"):
        vector(f"V_MAXMIN_{_type.upper()}", _kinds, lambda a, b, c: np.fmin(np.fmax(a, b), c))
        vector(f"V_MINMAX_{_type.upper()}", _kinds, lambda a, b, c: np.fmax(np.fmin(a, b), c))
for _type in ("f16", "f32", "f64"):
    _kinds = f"{_type} {_type} -> {_type}"
    vector(f"V_MAXIMUM_{_type.upper()}", _kinds, np.maximum)
    vector(f"V_MINIMUM_{_type.upper()}", _kinds, np.minimum)
for _type in ("f16", "f32"):
    _kinds = f"{_type} {_type} {_type} -> {_type}"
    for _name, _functions in (
        *(("MINIMUMMAXIMUM", (np.minimum, np.maximum)), ("MAXIMUM3", (np.maximum, np.maximum))),
        *(("MAXIMUMMINIMUM", (np.maximum, np.minimum)), ("MINIMUM3", (np.minimum, np.minimum))),
    ):
        if (_full := f"V_{_name}_{_type.upper()}") not in VECTOR:
            vector(_full, _kinds, lambda a, b, c, f=_functions: f[1](f[0](a, b), c))
for _name in ("EXP", "LOG", "RCP", "RSQ", "SQRT"):
    # Of scalar registers, with a scalar result.
    vector(f"V_S_{_name}_F32", "f32 -> f32", VECTOR[f"V_{_name}_F32"].function)
