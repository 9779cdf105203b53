"""Scalar operations, one value a wave: SOP1, SOP2, SOPC and SOPK."""

from __future__ import annotations

import numpy as np

from gfxemu.arrays import F32, I32, U32, U64, Array, ArrayFunction
from gfxemu.numbers import (
    add_carry,
    count_ones,
    extracted,
    first_one,
    fma,
    high_half,
    leading,
    leading_signed,
    reversed_bits,
    sub_borrow,
    to_integer,
)
from gfxemu.table import TYPES, scalar
from gfxemu.vector import FLOAT_COMPARISONS, ROUNDINGS

_31, _63 = U32(31), U64(63)


def _flagged(function: ArrayFunction) -> ArrayFunction:
    """With SCC: whether the result is not 0."""

    def run(*values: Array) -> tuple[Array, Array]:
        result = function(*values)
        return result, result != 0

    return run


scalar("S_MOV_B32", "u32 -> u32", lambda a: a)
scalar("S_MOV_B64", "u64 -> u64", lambda a: a)
scalar("S_CMOV_B32", "u32 scc dst -> u32", lambda a, scc, d: np.where(scc, a, d))
scalar("S_CSELECT_B32", "u32 u32 scc -> u32", lambda a, b, scc: np.where(scc, a, b))
scalar("S_CSELECT_B64", "u64 u64 scc -> u64", lambda a, b, scc: np.where(scc, a, b))

# Arithmetic
scalar("S_MUL_I32", "u32 u32 -> u32", np.multiply)
scalar("S_MUL_HI_U32", "u32 u32 -> u32", high_half)
scalar("S_MUL_HI_I32", "i32 i32 -> i32", high_half)
scalar("S_MULK_I32", "dst k -> i32", np.multiply)
scalar("S_MOVK_I32", "k -> i32", lambda k: k)
scalar("S_CMOVK_I32", "k scc dst -> i32", lambda k, scc, d: np.where(scc, k, d))
for _type in ("i32", "u32"):
    _kinds = f"{_type} {_type} -> {_type} scc"
    scalar(f"S_MIN_{_type.upper()}", _kinds, lambda a, b: (np.minimum(a, b), a < b))
    scalar(f"S_MAX_{_type.upper()}", _kinds, lambda a, b: (np.maximum(a, b), a >= b))
scalar("S_ABS_I32", "i32 -> i32 scc", _flagged(np.abs))
scalar("S_ABSDIFF_I32", "i32 i32 -> i32 scc", _flagged(lambda a, b: np.abs(a - b)))


def _add_i32(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) < 0


def _sub_i32(a: Array, b: Array) -> tuple[Array, Array]:
    difference = a - b
    return difference, ((a ^ b) & (a ^ difference)) < 0


scalar("S_ADD_U32", "u32 u32 -> u32 scc", lambda a, b: ((total := a + b), total < a))
scalar("S_SUB_U32", "u32 u32 -> u32 scc", lambda a, b: (a - b, b > a))
scalar("S_ADDC_U32", "u32 u32 scc -> u32 scc", add_carry)
scalar("S_SUBB_U32", "u32 u32 scc -> u32 scc", sub_borrow)
scalar("S_ADD_I32", "i32 i32 -> i32 scc", _add_i32)
scalar("S_SUB_I32", "i32 i32 -> i32 scc", _sub_i32)
scalar("S_ADDK_I32", "dst k -> i32 scc", _add_i32)
for _bits in (1, 2, 3, 4):
    scalar(
        f"S_LSHL{_bits}_ADD_U32",
        "u32 u32 -> u32 scc",
        lambda a, b, distance=_bits: add_carry(a.astype(U64) << U64(distance), b),
    )

# Bits; also for EXEC and its operands
_LOGIC: dict[str, ArrayFunction] = {
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "ANDN2": lambda a, b: a & ~b,
    "ORN2": lambda a, b: a | ~b,
    "NAND": lambda a, b: ~(a & b),
    "NOR": lambda a, b: ~(a | b),
    "XNOR": lambda a, b: ~(a ^ b),
}

# Bits, in 32 and 64
for _t, _mask in (("32", _31), ("64", _63)):
    _u, _i = f"u{_t}", f"i{_t}"
    for _name, _function in _LOGIC.items():
        scalar(f"S_{_name}_B{_t}", f"{_u} {_u} -> {_u} scc", _flagged(_function))
    scalar(f"S_NOT_B{_t}", f"{_u} -> {_u} scc", _flagged(np.invert))
    for _name, _type, _function in (
        (f"LSHL_B{_t}", _u, lambda a, b, mask=_mask: a << (b & mask)),
        (f"LSHR_B{_t}", _u, lambda a, b, mask=_mask: a >> (b & mask)),
        (f"ASHR_I{_t}", _i, lambda a, b, mask=_mask: a >> (b & mask).astype(a.dtype)),
    ):
        scalar(f"S_{_name}", f"{_type} u32 -> {_type} scc", _flagged(_function))
    scalar(f"S_BREV_B{_t}", f"{_u} -> {_u}", reversed_bits)
    scalar(f"S_BCNT1_I32_B{_t}", f"{_u} -> u32 scc", _flagged(count_ones))
    scalar(f"S_BCNT0_I32_B{_t}", f"{_u} -> u32 scc", _flagged(lambda a: count_ones(~a)))
    scalar(f"S_FF1_I32_B{_t}", f"{_u} -> u32", first_one)
    scalar(f"S_FF0_I32_B{_t}", f"{_u} -> u32", lambda a: first_one(~a))
    scalar(f"S_FLBIT_I32_B{_t}", f"{_u} -> u32", leading)
    for _bit in (0, 1):
        scalar(
            f"S_BITCMP{_bit}_B{_t}",
            f"{_u} u32 -> scc",
            lambda a, b, mask=_mask, bit=_bit: (a >> (b & mask) & mask.dtype.type(1)) == bit,
        )

scalar("S_FLBIT_I32", "i32 -> u32", leading_signed)
scalar("S_SEXT_I32_I8", "u32 -> i32", lambda a: a.astype(np.int8).astype(I32))
scalar("S_SEXT_I32_I16", "u32 -> i32", lambda a: a.astype(np.int16).astype(I32))
scalar("S_BITSET0_B32", "u32 dst -> u32", lambda a, d: d & ~(U32(1) << (a & _31)))
scalar("S_BITSET1_B32", "u32 dst -> u32", lambda a, d: d | U32(1) << (a & _31))
scalar("S_BFM_B32", "u32 u32 -> u32", lambda a, b: ((U32(1) << (a & _31)) - U32(1)) << (b & _31))
scalar("S_BFM_B64", "u32 u32 -> u64", lambda a, b: ((U64(1) << (a & _63)) - U64(1)) << (b & _63))
scalar("S_PACK_LL_B32_B16", "u32 u32 -> u32", lambda a, b: a & U32(0xFFFF) | b << U32(16))
scalar("S_PACK_LH_B32_B16", "u32 u32 -> u32", lambda a, b: a & U32(0xFFFF) | b & U32(0xFFFF0000))
scalar("S_PACK_HH_B32_B16", "u32 u32 -> u32", lambda a, b: a >> U32(16) | b & U32(0xFFFF0000))


def _bfe(value: Array, field: Array) -> Array:
    """Return the bits that `field` selects: their offset, and in its bits 16 to 22 their number."""
    return extracted(value, field, field >> U32(16) & U32(0x7F))


for _t in ("32", "64"):
    for _kind in ("u", "i"):
        _type = f"{_kind}{_t}"
        scalar(f"S_BFE_{_type.upper()}", f"{_type} u32 -> {_type} scc", _flagged(_bfe))


# Comparisons, whose only result is SCC
_COMPARE: dict[str, ArrayFunction] = {
    "EQ": np.equal,
    "LG": np.not_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "LT": np.less,
    "LE": np.less_equal,
}
for _name, _function in _COMPARE.items():
    for _t in ("i32", "u32"):
        scalar(f"S_CMP_{_name}_{_t.upper()}", f"{_t} {_t} -> scc", _function)
        # The constant has the sign of the comparison.
        scalar(
            f"S_CMPK_{_name}_{_t.upper()}",
            f"dst:{_t} {'k' if _t == 'i32' else 'ku'} -> scc",
            _function,
        )
scalar("S_CMP_EQ_U64", "u64 u64 -> scc", np.equal)
scalar("S_CMP_LG_U64", "u64 u64 -> scc", np.not_equal)


# EXEC from EXEC, the old one saved
_SAVE: dict[str, ArrayFunction] = {
    **_LOGIC,
    "ANDN1": lambda a, e: ~a & e,
    "ORN1": lambda a, e: ~a | e,
}


def _exec(function: ArrayFunction, saves: bool) -> ArrayFunction:
    """The previous or the new EXEC, the new one, and whether it is not 0."""

    def run(a: Array, exec_: Array) -> tuple[Array, Array, Array]:
        result = function(a, exec_)
        return exec_.copy() if saves else result, result, result != 0

    return run


for _t in ("32", "64"):
    _kinds = f"u{_t} exec -> u{_t} exec scc"
    for _name, _function in _SAVE.items():
        scalar(f"S_{_name}_SAVEEXEC_B{_t}", _kinds, _exec(_function, True))
    for _name in ("ANDN1", "ANDN2"):
        scalar(f"S_{_name}_WREXEC_B{_t}", _kinds, _exec(_SAVE[_name], False))

# RDNA4's own
scalar("S_ADD_NC_U64", "u64 u64 -> u64", np.add)
scalar("S_SUB_NC_U64", "u64 u64 -> u64", np.subtract)
scalar("S_MUL_U64", "u64 u64 -> u64", np.multiply)
scalar("S_PACK_HL_B32_B16", "u32 u32 -> u32", lambda a, b: a >> U32(16) | b << U32(16))
for _name, _function in (
    *(("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply)),
    *(("MIN", np.fmin), ("MAX", np.fmax)),
):
    scalar(f"S_{_name}_F32", "f32 f32 -> f32", _function)
scalar("S_FMAC_F32", "f32 f32 dst -> f32", fma)
scalar("S_FMAMK_F32", "f32 lit f32 -> f32", fma)
scalar("S_FMAAK_F32", "f32 f32 lit -> f32", fma)
scalar("S_MAXIMUM_F32", "f32 f32 -> f32", np.maximum)
scalar("S_MINIMUM_F32", "f32 f32 -> f32", np.minimum)
for _name, _function in ROUNDINGS.items():
    scalar(f"S_{_name}_F32", "f32 -> f32", _function)
for _type in ("i32", "u32"):
    scalar(f"S_CVT_F32_{_type.upper()}", f"{_type} -> f32", lambda a: a.astype(F32))
    scalar(
        f"S_CVT_{_type.upper()}_F32",
        f"f32 -> {_type}",
        lambda a, kind=TYPES[_type]: to_integer(a, kind),
    )
for _name, _function in FLOAT_COMPARISONS.items():
    if _name not in ("F", "TRU"):
        scalar(f"S_CMP_{_name}_F32", "f32 f32 -> scc", _function)
