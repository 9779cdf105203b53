"""The operations of the table in C, for the fast engine (engine.c).

An expression has the operands as a, b, c, d, in the types of the operation's signature; masks are 0
or all ones. Of several parts, separated by semicolons, the last ones are the outputs, in the order
of the signature, and the others are statements. Operations without an expression run in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gfxemu import bind
from gfxemu.numbers import EXP2, LOG2
from gfxemu.table import PACKED, SCALAR, TYPES, VECTOR, Operation

assert bind  # It fills the table.

_COMPARE = {"LT": "<", "EQ": "==", "LE": "<=", "GT": ">", "NE": "!=", "GE": ">="}
_LOGIC = {
    **{"AND": "a & b", "OR": "a | b", "XOR": "a ^ b", "ANDN2": "a & ~b", "ORN2": "a | ~b"},
    **{"NAND": "~(a & b)", "NOR": "~(a | b)", "XNOR": "~(a ^ b)"},
}
_TO_INTEGER = {
    "U32": "(u32)saturated(a, 0, 4294967295.0)",
    "I32": "(i32)saturated(a, -2147483648.0, 2147483647.0)",
}
_SUM = "u64 t = (u64)a + b"
_CARRY = "(u32)t; t > 0xFFFFFFFF"


def _vector() -> dict[str, str]:
    found = {
        "V_MOV_B32": "a",
        "V_MOV_B64": "a",
        "V_NOT_B32": "~a",
        "V_BFREV_B32": "(u32)reversed(a, 32)",
        "V_FFBL_B32": "first_one(a)",
        "V_FFBH_U32": "leading(a, 32)",
        "V_BCNT_U32_B32": "ones32(a) + b",
        "V_MED3_F32": "median_f32(a, b, c)",
        "V_FMAMK_F32": "fma_f32(a, b, c)",
        "V_FMAAK_F32": "fma_f32(a, b, c)",
        **dict.fromkeys(("V_MAD_F32", "V_MAC_F32", "V_MADMK_F32", "V_MADAK_F32"), "a * b + c"),
        "V_RCP_F16": "(f16)(1.0f / (f32)a)",
        "V_RCP_F32": "1.0f / a",
        "V_RCP_IFLAG_F32": "1.0f / a",
        "V_RCP_F64": "1.0 / a",
        "V_RSQ_F32": "(f32)(1.0 / root_f64((f64)a))",
        "V_SQRT_F16": "(f16)root((f32)a)",
        "V_SQRT_F32": "root(a)",
        "V_EXP_F16": "(f16)power_of_2((f32)a)",
        "V_LOG_F16": "(f16)log_of_2((f32)a)",
        **{"V_SIN_F32": "sine(a)", "V_COS_F32": "cosine(a)"},
        "V_FREXP_EXP_I16_F16": "(i16)power_of((f32)a)",
        **{f"V_FREXP_EXP_I32_{kind}": "power_of(a)" for kind in ("F32", "F64")},
        "V_FREXP_MANT_F16": "(f16)(f32)mantissa_of((f32)a)",
        **{f"V_FREXP_MANT_{kind}": "mantissa_of(a)" for kind in ("F32", "F64")},
        "V_EXP_F32": "power_of_2(a)",
        "V_LOG_F32": "log_of_2(a)",
        **{f"V_{name}_F32": f"{function}f(a)" for name, function in _ROUNDINGS.items()},
        "V_FRACT_F32": "fract_f32(a)",
        "V_LDEXP_F32": "scaled_f32(a, b)",
        "V_LDEXP_F64": "__builtin_ldexp(a, b)",
        "V_ADD3_U32": "a + b + c",
        "V_LSHL_ADD_U32": "(a << (b & 31)) + c",
        "V_LSHL_ADD_U64": "(a << (b & 7)) + c",
        "V_ADD_LSHL_U32": "(a + b) << (c & 31)",
        "V_LSHL_OR_B32": "a << (b & 31) | c",
        "V_AND_OR_B32": "(a & b) | c",
        "V_OR3_B32": "a | b | c",
        "V_XAD_U32": "(a ^ b) + c",
        "V_MUL_HI_U32": "(u32)((u64)a * b >> 32)",
        "V_MUL_HI_I32": "(i32)((i64)a * b >> 32)",
        "V_MUL_U32_U24": "(a & 0xFFFFFF) * (b & 0xFFFFFF)",
        "V_MUL_HI_U32_U24": "(u32)((u64)(a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32)",
        "V_MUL_I32_I24": "(a << 8 >> 8) * (b << 8 >> 8)",
        "V_MUL_HI_I32_I24": "(i32)((i64)(a << 8 >> 8) * (b << 8 >> 8) >> 32)",
        "V_MAD_U32_U24": "(a & 0xFFFFFF) * (b & 0xFFFFFF) + c",
        "V_MAD_I32_I24": "(a << 8 >> 8) * (b << 8 >> 8) + c",
        "V_MAD_U32_U16": "(u32)a * b + c",
        "V_MAD_U16": "(u16)((u32)a * b + c)",
        "V_AND_B32": "a & b",
        "V_OR_B32": "a | b",
        "V_XOR_B32": "a ^ b",
        "V_XNOR_B32": "~(a ^ b)",
        "V_MED3_I32": "median(a, b, c, min_i32, max_i32)",
        "V_MED3_U32": "median(a, b, c, min_u32, max_u32)",
        "V_BFI_B32": "(a & b) | (~a & c)",
        "V_MBCNT_LO_U32_B32": "ones32(l < 32 ? a & ((1u << (l & 31)) - 1) : a) + b",
        "V_MBCNT_HI_U32_B32": "ones32(l < 32 ? 0 : a & ((1u << (l & 31)) - 1)) + b",
        "V_BFM_B32": "((1u << (a & 31)) - 1) << (b & 31)",
        "V_CNDMASK_B32": "(c & b) | (~c & a)",
        "V_PACK_B32_F16": "of_f16(a) | (u32)of_f16(b) << 16",
        "V_SAD_U32": "(a > b ? a - b : b - a) + c",
        "V_SAD_U16": "u32 p = a & 0xFFFF, q = b & 0xFFFF, s = a >> 16, t = b >> 16;"
        "(p > q ? p - q : q - p) + (s > t ? s - t : t - s) + c",
        "V_BFE_U32": "a >> (b & 31) & ((1u << (c & 31)) - 1)",
        "V_BFE_I32": "(i32)extract_i(a, b, c & 31, 32)",
        "V_ALIGNBIT_B32": "(u32)(((u64)a << 32 | b) >> (c & 31))",
        "V_ALIGNBYTE_B32": "(u32)(((u64)a << 32 | b) >> (c % 4 * 8))",
        "V_PERM_B32": "perm(a, b, c)",
        "V_BITOP3_B32": "bitop3(a, b, c, (u64)insn->x[2])",
        "V_BITOP3_B16": "(u16)bitop3(a, b, c, (u64)insn->x[2])",
        "V_MAD_U64_U32": "u64 p = (u64)a * b; u64 t = p + c; t; t < p",
        "V_MAD_I64_I32": "i64 p = (i64)a * b; i64 t = p + c; t;(t < 0) ^ (((p ^ t) & (c ^ t)) < 0)",
        "V_ADD_CO_U32": f"{_SUM}; {_CARRY}",
        "V_SUB_CO_U32": "a - b; b > a",
        "V_SUBREV_CO_U32": "b - a; a > b",
        "V_ADDC_CO_U32": f"{_SUM} + (c & 1); {_CARRY}",
        "V_SUBB_CO_U32": "u64 t = (u64)b + (c & 1); (u32)(a - t); t > a",
        "V_SUBBREV_CO_U32": "u64 t = (u64)a + (c & 1); (u32)(b - t); t > b",
        "V_CVT_F32_U32": "(f32)a",
        "V_CVT_F32_I32": "(f32)a",
        "V_CVT_F32_F16": "(f32)a",
        "V_CVT_F32_F64": "(f32)a",
        "V_CVT_F16_F32": "(f16)a",
        "V_CVT_F16_U16": "(f16)(f32)a",
        "V_CVT_F16_I16": "(f16)(f32)a",
        "V_CVT_F64_F32": "(f64)a",
        "V_CVT_F64_I32": "(f64)a",
        "V_CVT_F64_U32": "(f64)a",
        **{f"V_CVT_{to}_{of}": _TO_INTEGER[to] for to in _TO_INTEGER for of in ("F32", "F64")},
        "V_CVT_U16_F16": "(u16)saturated((f32)a, 0, 65535)",
        "V_CVT_I16_F16": "(i16)saturated((f32)a, -32768, 32767)",
        "V_CVT_RPI_I32_F32": "(i32)saturated(__builtin_floor((f64)a + 0.5), "
        "-2147483648.0, 2147483647.0)",
        "V_CVT_FLR_I32_F32": "(i32)saturated(__builtin_floorf(a), -2147483648.0, 2147483647.0)",
        "V_CVT_PKRTZ_F16_F32": "f16_toward_zero(a) | f16_toward_zero(b) << 16",
        "V_CVT_PK_F16_F32": "of_f16((f16)a) | (u32)of_f16((f16)b) << 16",
        "V_CVT_PK_BF16_F32": "bf16_bits(a) | bf16_bits(b) << 16",
        "V_CVT_PK_U16_U32": "min_u32(a, 0xFFFF) | min_u32(b, 0xFFFF) << 16",
        "V_CVT_PK_I16_I32": "(u16)max_i32(min_i32(a, 32767), -32768) | "
        "(u32)(u16)max_i32(min_i32(b, 32767), -32768) << 16",
    }
    for name, mantissa in (("FP8", 3), ("BF8", 2)):
        rest = f"{mantissa}, (u64)insn->x[2])"
        found |= {
            f"V_CVT_PK_{name}_F32": f"to_float8(a, {rest} | to_float8(b, {rest} << 8",
            f"V_CVT_F32_{name}": f"from_float8(a & 0xFF, {rest}",
            f"V_CVT_PK_F32_{name}": f"of_f32(from_float8(a & 0xFF, {rest})"
            f" | (u64)of_f32(from_float8(a >> 8 & 0xFF, {rest}) << 32",
        }
    for kind in ("f16", "f32", "f64"):
        name = kind.upper()
        found |= {
            f"V_CMP_CLASS_{name}": f"class_{kind}(a, b)",
            f"V_CMPX_CLASS_{name}": f"class_{kind}(a, b)",
            f"V_FMA_{name}": f"fma_{kind}(a, b, c)",
            f"V_FMAC_{name}": f"fma_{kind}(a, b, c)",
            f"V_PK_FMA_{name}": f"fma_{kind}(a, b, c)",
        }
    for kind in ("f32", "f64"):
        name = kind.upper()
        found |= {
            f"V_DIV_SCALE_{name}": f"u32 flag; {kind} r = div_scale_{kind}(a, b, c, &flag);r; flag",
            f"V_DIV_FMAS_{name}": f"div_fmas_{kind}(a, b, c, d)",
            f"V_DIV_FIXUP_{name}": f"div_fixup_{kind}(a, b, c)",
        }
    found |= _rdna()
    for byte in range(4):
        found[f"V_CVT_F32_UBYTE{byte}"] = f"(f32)(a >> {8 * byte} & 0xFF)"
    for kind in TYPES:
        for prefix in ("V_", "V_PK_"):
            name = kind.upper()
            calls = f"fmax_{kind}(a, b)", f"fmin_{kind}(a, b)"
            found |= {
                f"{prefix}ADD_{name}": "a + b",
                f"{prefix}SUB_{name}": "a - b",
                f"{prefix}SUBREV_{name}": "b - a",
                f"{prefix}MUL_{name}": "a * b",
                f"{prefix}MUL_LO_{name}": "(u32)a * (u32)b",
                f"{prefix}MAX_{name}": calls[0] if kind[0] == "f" else "a > b ? a : b",
                f"{prefix}MIN_{name}": calls[1] if kind[0] == "f" else "a < b ? a : b",
                f"{prefix}MAD_{name}": "a * b + c"
                if kind[0] == "f"
                else "(u32)a * (u32)b + (u32)c",
            }
        for prefix in ("V_CMP", "V_CMPX"):
            found |= {f"{prefix}_{name}_{kind.upper()}": text for name, text in _comparisons(kind)}
    for width in (16, 32, 64):
        for prefix in ("V_", "V_PK_"):
            found |= {
                f"{prefix}LSHLREV_B{width}": f"b << (a & {width - 1})",
                f"{prefix}LSHRREV_B{width}": f"b >> (a & {width - 1})",
                f"{prefix}ASHRREV_I{width}": f"b >> (a & {width - 1})",
            }
    return found


def _rdna() -> dict[str, str]:
    """Return expressions of operations that RDNA has, and CDNA has rarely or not at all."""
    found = {
        "V_XOR3_B32": "a ^ b ^ c",
        "V_MOV_B16": "a",
        "V_NOT_B16": "(u16)~a",
        "V_CNDMASK_B16": "(u16)((c & b) | (~c & a))",
        **{f"V_{name}_B16": _LOGIC[name] for name in ("AND", "OR", "XOR")},
        "V_FFBH_I32": "leading((u32)(a < 0 ? ~a : a), 32)",
        "V_FMAMK_F16": "fma_f16(a, b, c)",
        "V_FMAAK_F16": "fma_f16(a, b, c)",
        "V_LDEXP_F16": "(f16)scaled_f32((f32)a, b)",
        "V_MUL_DX9_ZERO_F32": "a == 0 || b == 0 ? 0 : a * b",
        "V_FMA_DX9_ZERO_F32": "int zero = a == 0 || b == 0; fma_f32(zero ? 0 : a, zero ? 0 : b, c)",
        "V_CVT_I32_I16": "(i32)a",
        "V_CVT_U32_U16": "(u32)a",
        "V_MAD_I32_I16": "(i32)a * b + c",
        "V_RSQ_F16": "(f16)(1.0f / (f32)(f16)root((f32)a))",
        "V_RSQ_F64": "1.0 / root_f64(a)",
        "V_SQRT_F64": "root_f64(a)",
        "V_S_EXP_F32": "power_of_2(a)",
        "V_S_LOG_F32": "log_of_2(a)",
        "V_S_RCP_F32": "1.0f / a",
        "V_S_RSQ_F32": "(f32)(1.0 / root_f64((f64)a))",
        "V_S_SQRT_F32": "root(a)",
        "V_MED3_F16": "median_f16(a, b, c)",
        **dict.fromkeys(("V_MED3_I16", "V_MED3_U16"), "median(a, b, c, min_i32, max_i32)"),
    }
    for name, function in _ROUNDINGS.items():
        found[f"V_{name}_F16"] = f"(f16){function}f((f32)a)"
        found[f"V_{name}_F64"] = f"{function}(a)"
    found["V_DIV_FIXUP_F16"] = "div_fixup_f16(a, b, c)"
    found |= {"V_FRACT_F16": "fract_f16(a)", "V_FRACT_F64": "fract_f64(a)"}
    for kind in ("f16", "f32", "f64", "i16", "u16", "i32", "u32"):
        prefix = "f" if kind[0] == "f" else ""
        of = "i32" if kind in ("i16", "u16") else kind
        calls = {"MAX": f"{prefix}max_{of}", "MIN": f"{prefix}min_{of}"}
        if prefix:
            calls |= {"MAXIMUM": f"maximum_{of}", "MINIMUM": f"minimum_{of}"}
            found |= {f"V_{name}_{kind.upper()}": f"{calls[name]}(a, b)" for name in _IEEE}
        for first, second in (*_PAIRS, *(_IEEE_PAIRS if prefix else ())):
            name = f"{first}3" if first == second else f"{first}{second}"
            found[f"V_{name}_{kind.upper()}"] = f"{calls[second]}({calls[first]}(a, b), c)"
    return found


#: Functions of C that round to an integer; with f behind the name, those of f32.
_ROUNDINGS = {
    **{"FLOOR": "__builtin_floor", "CEIL": "__builtin_ceil", "TRUNC": "__builtin_trunc"},
    "RNDNE": "__builtin_rint",
}
#: Two operations that follow each other; of a NaN and a number, IEEE's have the NaN.
_PAIRS = (("MAX", "MAX"), ("MIN", "MIN"), ("MAX", "MIN"), ("MIN", "MAX"))
_IEEE = ("MAXIMUM", "MINIMUM")
_IEEE_PAIRS = tuple((first, second) for first in _IEEE for second in _IEEE)


def _comparisons(kind: str) -> Iterator[tuple[str, str]]:
    # Those of 16 bits compare as f32, which has all their values.
    wide = "(f32)" if kind == "f16" else ""
    a, b = f"{wide}a", f"{wide}b"
    ordered = f"({a} == {a} && {b} == {b})"
    if kind[0] != "f":
        yield from ((name, f"a {sign} b") for name, sign in _COMPARE.items())
        yield from (("F", "0"), ("T", "1"))
        return
    for name, sign in _COMPARE.items():
        if name != "NE":
            yield name, f"{a} {sign} {b}"
        if name not in ("NE", "EQ"):
            yield f"N{name}", f"!({a} {sign} {b})"
    less_or_greater = f"({a} < {b} || {a} > {b})"
    yield from (("F", "0"), ("TRU", "1"), ("O", ordered), ("U", f"!{ordered}"))
    yield from (("LG", less_or_greater), ("NLG", f"!{less_or_greater}"), ("NEQ", f"{a} != {b}"))


def _scalar() -> dict[str, str]:
    overflow = "i32 t = a {0} b; t; ((a ^ {1}) & ({2} ^ t)) < 0"
    add, sub = overflow.format("+", "t", "b"), overflow.format("-", "b", "a")
    found = {
        "S_MOV_B32": "a",
        "S_MOV_B64": "a",
        "S_CMOV_B32": "b ? a : c",
        "S_CSELECT_B32": "c ? a : b",
        "S_CSELECT_B64": "c ? a : b",
        "S_MUL_I32": "a * b",
        "S_MUL_HI_U32": "(u32)((u64)a * b >> 32)",
        "S_MUL_HI_I32": "(i32)((i64)a * b >> 32)",
        "S_MULK_I32": "a * b",
        "S_MOVK_I32": "a",
        "S_CMOVK_I32": "b ? a : c",
        "S_ABS_I32": "a < 0 ? -a : a",
        "S_ABSDIFF_I32": "i32 t = a - b; t < 0 ? -t : t",
        "S_ADD_U32": "u32 t = a + b; t; t < a",
        "S_SUB_U32": "a - b; b > a",
        "S_ADDC_U32": f"{_SUM} + (c & 1); {_CARRY}",
        "S_SUBB_U32": "u64 t = (u64)b + (c & 1); (u32)(a - t); t > a",
        "S_ADD_I32": add,
        "S_SUB_I32": sub,
        "S_ADDK_I32": add,
        "S_FLBIT_I32": "leading((u32)(a < 0 ? ~a : a), 32)",
        "S_SEXT_I32_I8": "(i8)a",
        "S_SEXT_I32_I16": "(i16)a",
        "S_BITSET0_B32": "b & ~(1u << (a & 31))",
        "S_BITSET1_B32": "b | 1u << (a & 31)",
        "S_BFM_B32": "((1u << (a & 31)) - 1) << (b & 31)",
        "S_BFM_B64": "(((u64)1 << (a & 63)) - 1) << (b & 63)",
        "S_PACK_LL_B32_B16": "(a & 0xFFFF) | b << 16",
        "S_PACK_LH_B32_B16": "(a & 0xFFFF) | (b & 0xFFFF0000)",
        "S_PACK_HH_B32_B16": "a >> 16 | (b & 0xFFFF0000)",
        "S_CMP_EQ_U64": "a == b",
        "S_CMP_LG_U64": "a != b",
    }
    for kind in ("i32", "u32"):
        found |= {
            f"S_MIN_{kind.upper()}": "a < b ? a : b; a < b",
            f"S_MAX_{kind.upper()}": "a > b ? a : b; a >= b",
        }
        for compared, sign in _COMPARE.items():
            name = compared.replace("NE", "LG")
            found |= dict.fromkeys(
                (f"S_CMP_{name}_{kind.upper()}", f"S_CMPK_{name}_{kind.upper()}"), f"a {sign} b"
            )
    for distance in (1, 2, 3, 4):
        found[f"S_LSHL{distance}_ADD_U32"] = f"u64 t = ((u64)a << {distance}) + b; {_CARRY}"
    for width in (32, 64):
        found |= {
            f"S_LSHL_B{width}": f"a << (b & {width - 1})",
            f"S_LSHR_B{width}": f"a >> (b & {width - 1})",
            f"S_ASHR_I{width}": f"a >> (b & {width - 1})",
            f"S_NOT_B{width}": "~a",
            f"S_BREV_B{width}": f"reversed(a, {width})",
            f"S_BCNT1_I32_B{width}": "(u32)__builtin_popcountll(a)",
            f"S_BCNT0_I32_B{width}": f"(u32)({width} - __builtin_popcountll(a))",
            f"S_FF1_I32_B{width}": "first_one(a)",
            f"S_FF0_I32_B{width}": f"first_one((u{width})~a)",
            f"S_FLBIT_I32_B{width}": f"leading(a, {width})",
            f"S_BITCMP0_B{width}": f"(a >> (b & {width - 1}) & 1) == 0",
            f"S_BITCMP1_B{width}": f"(a >> (b & {width - 1}) & 1) == 1",
            f"S_BFE_U{width}": f"extract_u(a, b, b >> 16 & 0x7F, {width})",
            f"S_BFE_I{width}": f"extract_i(a, b, b >> 16 & 0x7F, {width})",
        }
        found |= {f"S_{name}_B{width}": text for name, text in _LOGIC.items()}
    saves = {**_LOGIC, "ANDN1": "~a & b", "ORN1": "~a | b"}
    for name, text in saves.items():
        for width in (32, 64):
            found[f"S_{name}_SAVEEXEC_B{width}"] = f"u{width} t = {text}; b; t; t != 0"
    for name in ("ANDN1", "ANDN2"):
        for width in (32, 64):
            found[f"S_{name}_WREXEC_B{width}"] = f"u{width} t = {saves[name]}; t; t; t != 0"
    return found | _rdna_scalar()


def _rdna_scalar() -> dict[str, str]:
    found = {
        "S_ADD_NC_U64": "a + b",
        "S_SUB_NC_U64": "a - b",
        "S_MUL_U64": "a * b",
        "S_PACK_HL_B32_B16": "a >> 16 | b << 16",
        **{"S_ADD_F32": "a + b", "S_SUB_F32": "a - b", "S_MUL_F32": "a * b"},
        **{"S_MIN_F32": "fmin_f32(a, b)", "S_MAX_F32": "fmax_f32(a, b)"},
        **{"S_MAXIMUM_F32": "maximum_f32(a, b)", "S_MINIMUM_F32": "minimum_f32(a, b)"},
        **dict.fromkeys(("S_FMAC_F32", "S_FMAMK_F32", "S_FMAAK_F32"), "fma_f32(a, b, c)"),
        **{f"S_{name}_F32": f"{function}f(a)" for name, function in _ROUNDINGS.items()},
        **{f"S_CVT_F32_{kind}": "(f32)a" for kind in ("I32", "U32")},
        **{f"S_CVT_{kind}_F32": _TO_INTEGER[kind] for kind in ("I32", "U32")},
    }
    return found | {f"S_CMP_{name}_F32": text for name, text in _comparisons("f32")}


_VECTOR = _vector()
#: Expressions by operation, for those of the table that the fast engine runs.
EXPRESSIONS: dict[str, str] = {
    name: text
    for texts, tables in ((_VECTOR, (VECTOR, PACKED)), (_scalar(), (SCALAR,)))
    for name, text in texts.items()
    if any(name in table for table in tables)
}
_VECTORS = {**VECTOR, **PACKED}
_PRODUCTS = {
    "U32_U24": "(a & 0xFFFFFF) * (b & 0xFFFFFF)",
    "I32_I24": "((i32)a << 8 >> 8) * (i64)((i32)b << 8 >> 8)",
}
#: By operation of integers with a clamp, its exact result of operands of 64 bits.
CLAMPED: dict[str, str] = {
    name: text
    for prefix in ("V_", "V_PK_")
    for name, text in (
        *(
            (f"{prefix}{name}_{kind}", text)
            for kind in ("U16", "I16", "U32", "I32", "U32_U16", "I32_I16", *_PRODUCTS)
            for name, text in (
                *(("ADD", "a + b"), ("SUB", "a - b"), ("SUBREV", "b - a")),
                *(("MUL_LO", "a * b"), ("MAD", f"{_PRODUCTS.get(kind, 'a * b')} + c")),
            )
        ),
    )
    if name in _VECTORS
}
#: Names of operations by their number in the engine; those with a clamp are the last ones.
VECTOR_NAMES: Sequence[str] = sorted(name for name in EXPRESSIONS if name in _VECTORS)
CLAMPED_NAMES: Sequence[str] = sorted(CLAMPED)
SCALAR_NAMES: Sequence[str] = sorted(name for name in EXPRESSIONS if name in SCALAR)
#: Operands that are not values of lanes.
FIXED = ("table", "fnuz")

_LETTERS = "abcd"
_WIDE = ("u64", "i64", "f64")


def type_of(kind: str, operation: Operation) -> str:
    """Return the C type of an operand."""
    if kind.startswith("dst"):
        return kind.partition(":")[2] or operation.outputs[0]
    if kind == "lit":
        return operation.outputs[0]
    fixed = {"mask": "u32", "vcc": "u32", "scc": "u32", "exec": "u64", "k": "i32"}
    return {**fixed, "ku": "u32"}.get(kind, kind)


def _from_bits(kind: str, bits: str) -> str:
    if kind in ("f32", "f64"):
        return f"{kind}_of({bits})"
    return f"f16_of((u16){bits})" if kind == "f16" else f"({kind}){bits}"


def _to_bits(kind: str, value: str) -> str:
    """Return the bits of a value, as the unsigned integer of its size."""
    unsigned = "u" + kind[1:]
    return f"of_{kind}(r)" if kind[0] == "f" and value == "r" else f"({unsigned}){value}"


def _parts(name: str, operation: Operation) -> tuple[list[str], list[str]]:
    """Return the statements and the outputs of an expression."""
    parts = [part.strip() for part in EXPRESSIONS[name].split(";")]
    count = len(operation.outputs)
    # A scalar operation with one output sets SCC if it is not 0.
    if operation.outputs[-1] == "scc" and len(operation.outputs) == 2 and _single(parts):
        parts.append("r != 0")
    return parts[:-count], parts[-count:]


def _single(parts: Sequence[str]) -> bool:
    return sum(1 for part in parts if not part.startswith(("u64 ", "u32 ", "i32 ", "i64 "))) == 1


def _vector_function(name: str) -> str:
    operation = _VECTORS[name]
    values = [kind for kind in operation.inputs if kind not in FIXED]
    lines = [
        f"static void v_{name}(const void *const *p, void *out, u32 *flags, const Insn *insn) {{"
    ]
    for place, kind in enumerate(values):
        bits = "u64" if type_of(kind, operation) in _WIDE else "u32"
        lines.append(f"  const {bits} *restrict p{place} = p[{place}];")
    kind = operation.outputs[0]
    mask_only = kind == "mask"
    bits = "u64" if kind in _WIDE else "u32"
    lines += [f"  {bits} *restrict o = out;", "  u32 *restrict m = flags;"]
    lines += ["  for (int l = 0; l < LANES; l++) {"]
    for place, operand in enumerate(values):
        of = type_of(operand, operation)
        lines.append(f"    {of} {_LETTERS[place]} = {_from_bits(of, f'p{place}[l]')};")
    statements, outputs = _parts(name, operation)
    lines += [f"    {part};" for part in statements]
    if mask_only:
        lines.append(f"    m[l] = {outputs[0]};")
    else:
        if outputs[0] != "r":
            lines.append(f"    {kind} r = ({kind})({outputs[0]});")
        lines.append(f"    o[l] = ({bits}){_to_bits(kind, 'r')};")
        if len(outputs) > 1:
            lines.append(f"    m[l] = {outputs[1]};")
    return "\n".join([*lines, "  }", "  (void)o, (void)m, (void)insn;", "}"])


def _clamped_function(name: str) -> str:
    """Return the function of an operation of integers that clamps its result."""
    operation = _VECTORS[name]
    kind = operation.outputs[0]
    lines = [f"static void c_{name}(const void *const *p, void *out, u32 *flags, const Insn *insn)"]
    lines[0] += " {"
    places = range(len(operation.inputs))
    lines += [f"  const u32 *restrict p{place} = p[{place}];" for place in places]
    lines += ["  u32 *restrict o = out;", "  for (int l = 0; l < LANES; l++) {"]
    for place, operand in enumerate(operation.inputs):
        lines.append(f"    i64 {_LETTERS[place]} = ({type_of(operand, operation)})p{place}[l];")
    low, high = (0, 2 ** int(kind[1:]) - 1)
    if kind[0] == "i":
        low, high = -(high // 2) - 1, high // 2
    lines.append(f"    i64 r = {CLAMPED[name]};")
    lines.append(f"    r = r < {low}ll ? {low}ll : r > {high}ll ? {high}ll : r;")
    return "\n".join([*lines, "    o[l] = (u32)r;", "  }", "  (void)flags, (void)insn;", "}"])


def _scalar_function(name: str) -> str:
    operation = SCALAR[name]
    lines = [f"static u64 s_{name}(u64 p0, u64 p1, u64 p2, u32 *scc, u64 *exec) {{"]
    for place, kind in enumerate(operation.inputs):
        of = type_of(kind, operation)
        lines.append(f"  {of} {_LETTERS[place]} = {_from_bits(of, f'p{place}')};")
    statements, outputs = _parts(name, operation)
    lines += [f"  {part};" for part in statements]
    result = "0"
    for kind, value in zip(operation.outputs, outputs, strict=True):
        if kind == "scc":
            lines.append(f"  *scc = (u32)({value});")
        elif kind == "exec":
            lines.append(f"  *exec = {value};")
        else:
            lines.append(f"  {kind} r = ({kind})({value});")
            result = _to_bits(kind, "r")
    lines.append("  (void)p0, (void)p1, (void)p2, (void)scc, (void)exec;")
    return "\n".join([*lines, f"  return {result};", "}"])


def operations_header() -> str:
    """Return operations.h: a function for each operation, and tables of them."""
    constants = [f"#define EXP2_{power} {value.hex()}" for power, value in enumerate(EXP2)]
    constants += [f"#define LOG2_{2 * place + 1} {value.hex()}" for place, value in enumerate(LOG2)]
    functions = [_vector_function(name) for name in VECTOR_NAMES]
    functions += [_clamped_function(name) for name in CLAMPED_NAMES]
    functions += [_scalar_function(name) for name in SCALAR_NAMES]
    vectors = [f"v_{name}" for name in VECTOR_NAMES] + [f"c_{name}" for name in CLAMPED_NAMES]
    tables = [
        f"static {kind} *const {table}[] = {{{', '.join(names)}}};"
        for kind, table, names in (
            ("VectorOp", "vector_ops", vectors),
            ("ScalarOp", "scalar_ops", [f"s_{name}" for name in SCALAR_NAMES]),
        )
    ]
    return "\n".join(
        [
            "// Written by gfxemu/expressions.py.",
            "#ifdef QOLA_CONSTANTS",
            *constants,
            "#else",
            *functions,
            *tables,
            "#endif",
            "",
        ]
    )


if __name__ == "__main__":
    print(operations_header(), end="")
