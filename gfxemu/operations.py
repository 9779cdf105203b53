"""The table of operations: name, operands, results, and an expression in C.

A signature such as ``f32 f32 -> f32`` has a type for each operand in the order of the instruction.
Other kinds of operands:

- ``mask``: a bit a lane, 0 or all ones; VCC where the encoding names no register,
- ``vcc``: the same of VCC, whatever the encoding names,
- ``scc``: the scalar condition code; ``exec``: EXEC,
- ``dst``: the value of the destination, in the type of the result or behind a colon,
- ``lit``: the literal behind the instruction (V_FMAMK and the like),
- ``k``, ``ku``: the constant of SOPK, with and without a sign,
- ``table``: the truth table of V_BITOP3; ``fnuz``: whether floats of 8 bits are gfx942's;
  ``signs``: which operands of a dot product have a sign.

An expression has the operands as a, b, c, d, in the types of the signature. Of several parts,
separated by semicolons, the last ones are the results, in the order of the signature, and the
others are statements. `expressions` makes functions of them, which engine.c calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

#: Bytes of each type of values in a register or a pair of them.
SIZES = {
    **{"u16": 2, "i16": 2, "f16": 2, "u32": 4, "i32": 4, "f32": 4},
    **{"u64": 8, "i64": 8, "f64": 8},
}


@dataclass(frozen=True)
class Operation:
    """An operation that is a function of its operands, lane by lane or wave by wave.

    Attributes:
        clamped: its exact result of operands of 64 bits, if it is of integers and has a clamp.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    expression: str
    clamped: str = ""


#: Vector operations (VOP1, VOP2, VOP3, VOPC): a value a lane.
VECTOR: dict[str, Operation] = {}
#: Scalar operations (SOP1, SOP2, SOPC, SOPK): a value a wave.
SCALAR: dict[str, Operation] = {}
#: Packed operations (VOP3P): two values a lane, whose types the signature gives.
PACKED: dict[str, Operation] = {}


def _add(
    table: dict[str, Operation], name: str, signature: str, expression: str, clamped: str = ""
) -> None:
    inputs, outputs = signature.split("->")
    if name in table:
        raise ValueError(f"{name} is in the table already")
    kinds = tuple(inputs.split()), tuple(outputs.split())
    table[name] = Operation(name, *kinds, expression, clamped)


# Each enters an operation: name, signature, expression.
vector, scalar, packed = partial(_add, VECTOR), partial(_add, SCALAR), partial(_add, PACKED)

_FLOATS = ("f16", "f32", "f64")
_COMPARE = {"LT": "<", "EQ": "==", "LE": "<=", "GT": ">", "NE": "!=", "GE": ">="}
_LOGIC = {
    **{"AND": "a & b", "OR": "a | b", "XOR": "a ^ b", "ANDN2": "a & ~b", "ORN2": "a | ~b"},
    **{"NAND": "~(a & b)", "NOR": "~(a | b)", "XNOR": "~(a ^ b)"},
}
_TO_INTEGER = {
    "u32": "(u32)saturated(a, 0, 4294967295.0)",
    "i32": "(i32)saturated(a, -2147483648.0, 2147483647.0)",
    "u16": "(u16)saturated((f32)a, 0, 65535)",
    "i16": "(i16)saturated((f32)a, -32768, 32767)",
}
_SUM = "u64 t = (u64)a + b"
_CARRY = "(u32)t; t > 0xFFFFFFFF"
#: Functions of C that round to an integer; with f behind the name, those of f32.
_ROUNDINGS = {
    **{"FLOOR": "__builtin_floor", "CEIL": "__builtin_ceil", "TRUNC": "__builtin_trunc"},
    "RNDNE": "__builtin_rint",
}
_M24 = "0xFFFFFF"
_LOW24 = "({} << 8 >> 8)"

# ---------------------------------------------------------------------------------------------
# Arithmetic of several types: table and prefix, type, names

for _enter, _prefix, _type, _names in (
    (vector, "V", "f16", "ADD SUB SUBREV MUL MAX MIN"),
    (vector, "V", "f32", "ADD SUB SUBREV MUL MAX MIN"),
    (vector, "V", "f64", "ADD MUL MAX MIN"),
    (vector, "V", "u16", "ADD SUB SUBREV MUL_LO MAX MIN MAD"),
    (vector, "V", "i16", "ADD SUB MAX MIN MAD"),
    (vector, "V", "u32", "ADD SUB SUBREV MUL_LO MAX MIN"),
    (vector, "V", "i32", "ADD SUB MAX MIN"),
    (packed, "V_PK", "f16", "ADD MUL MAX MIN"),
    (packed, "V_PK", "f32", "ADD MUL"),
    (packed, "V_PK", "u16", "ADD SUB MUL_LO MAX MIN MAD"),
    (packed, "V_PK", "i16", "ADD SUB MAX MIN MAD"),
):
    _whole = _type[0] != "f"
    for _name in _names.split():
        _expression = {
            **{"ADD": "a + b", "SUB": "a - b", "SUBREV": "b - a", "MUL": "a * b"},
            **{"MUL_LO": "(u32)a * (u32)b", "MAD": "(u32)a * (u32)b + (u32)c"},
            # Of a NaN and a number the number.
            "MAX": "a > b ? a : b" if _whole else f"fmax_{_type}(a, b)",
            "MIN": "a < b ? a : b" if _whole else f"fmin_{_type}(a, b)",
        }[_name]
        _exact = {"MUL_LO": "a * b", "MAD": "a * b + c"}.get(_name, _expression)
        _kinds = f"{_type} {_type} {_type if _name == 'MAD' else ''} -> {_type}"
        _clamped = _exact if _whole and _name not in ("MAX", "MIN") else ""
        _enter(f"{_prefix}_{_name}_{_type.upper()}", _kinds, _expression, _clamped)
for _type in _FLOATS:
    _fma = f"fma_{_type}(a, b, c)"
    vector(f"V_FMA_{_type.upper()}", f"{_type} {_type} {_type} -> {_type}", _fma)
    vector(f"V_FMAC_{_type.upper()}", f"{_type} {_type} dst -> {_type}", _fma)
    if _type != "f64":
        packed(f"V_PK_FMA_{_type.upper()}", f"{_type} {_type} {_type} -> {_type}", _fma)
for _enter, _prefix, _width, _count in (
    *((vector, "V", 16, "u16"), (vector, "V", 32, "u32"), (vector, "V", 64, "u32")),
    (packed, "V_PK", 16, "u16"),
):
    for _name, _type, _sign in (
        *((f"LSHLREV_B{_width}", f"u{_width}", "<<"), (f"LSHRREV_B{_width}", f"u{_width}", ">>")),
        (f"ASHRREV_I{_width}", f"i{_width}", ">>"),
    ):
        _expression = f"b {_sign} (a & {_width - 1})"
        _enter(f"{_prefix}_{_name}", f"{_count} {_type} -> {_type}", _expression)

# Two operations that follow each other; of a NaN and a number, IEEE's have the NaN.
_EXTREMES = {
    **{"MAX3": ("max", "max"), "MIN3": ("min", "min")},
    **{"MAXMIN": ("max", "min"), "MINMAX": ("min", "max")},
}
_IEEE = {
    **{"MAXIMUM3": ("maximum", "maximum"), "MINIMUM3": ("minimum", "minimum")},
    "MAXIMUMMINIMUM": ("maximum", "minimum"),
    "MINIMUMMAXIMUM": ("minimum", "maximum"),
}
for _type in ("f16", "f32", "i32", "u32", "i16", "u16"):
    _three = f"{_type} {_type} {_type} -> {_type}"
    _of = "i32" if _type[1:] == "16" and _type[0] != "f" else _type
    _first = "f" if _type[0] == "f" else ""
    for _name, (_inner, _outer) in _EXTREMES.items():
        if _name[-1] == "3" or _type not in ("i16", "u16"):
            _expression = f"{_first}{_outer}_{_of}({_first}{_inner}_{_of}(a, b), c)"
            vector(f"V_{_name}_{_type.upper()}", _three, _expression)
    _median = f"median_{_type}(a, b, c)" if _first else f"median(a, b, c, min_{_of}, max_{_of})"
    vector(f"V_MED3_{_type.upper()}", _three, _median)
    if _first:
        for _name, (_inner, _outer) in _IEEE.items():
            _expression = f"{_outer}_{_type}({_inner}_{_type}(a, b), c)"
            vector(f"V_{_name}_{_type.upper()}", _three, _expression)
for _type in _FLOATS:
    for _name in ("maximum", "minimum"):
        _expression = f"{_name}_{_type}(a, b)"
        vector(f"V_{_name.upper()}_{_type.upper()}", f"{_type} {_type} -> {_type}", _expression)

# ---------------------------------------------------------------------------------------------
# Moves and bits

vector("V_NOP", "->", "")
vector("V_MOV_B16", "u16 -> u16", "a")
vector("V_MOV_B32", "u32 -> u32", "a")
vector("V_MOV_B64", "u64 -> u64", "a")
# Two moves, as `encode_registers` makes them.
packed("V_PK_MOV_B32", "u32 u32 -> u32", "")
vector("V_NOT_B16", "u16 -> u16", "(u16)~a")
vector("V_NOT_B32", "u32 -> u32", "~a")
vector("V_BFREV_B32", "u32 -> u32", "(u32)reversed(a, 32)")
vector("V_FFBL_B32", "u32 -> u32", "first_one(a)")
vector("V_FFBH_U32", "u32 -> u32", "leading(a, 32)")
vector("V_FFBH_I32", "i32 -> u32", "leading((u32)(a < 0 ? ~a : a), 32)")
vector("V_BCNT_U32_B32", "u32 u32 -> u32", "ones32(a) + b")
vector(
    *("V_MBCNT_LO_U32_B32", "u32 u32 -> u32"),
    "ones32(l < 32 ? a & ((1u << (l & 31)) - 1) : a) + b",
)
vector(
    *("V_MBCNT_HI_U32_B32", "u32 u32 -> u32"),
    "ones32(l < 32 ? 0 : a & ((1u << (l & 31)) - 1)) + b",
)
for _name in ("AND", "OR", "XOR"):
    vector(f"V_{_name}_B16", "u16 u16 -> u16", _LOGIC[_name])
for _name in ("AND", "OR", "XOR", "XNOR"):
    vector(f"V_{_name}_B32", "u32 u32 -> u32", _LOGIC[_name])
for _name, _expression in (
    *(("ADD3_U32", "a + b + c"), ("LSHL_ADD_U32", "(a << (b & 31)) + c")),
    *(("ADD_LSHL_U32", "(a + b) << (c & 31)"), ("LSHL_OR_B32", "a << (b & 31) | c")),
    *(("AND_OR_B32", "(a & b) | c"), ("OR3_B32", "a | b | c"), ("XOR3_B32", "a ^ b ^ c")),
    *(("XAD_U32", "(a ^ b) + c"), ("BFI_B32", "(a & b) | (~a & c)"), ("PERM_B32", "perm(a, b, c)")),
    ("BFE_U32", "a >> (b & 31) & ((1u << (c & 31)) - 1)"),
    ("ALIGNBIT_B32", "(u32)(((u64)a << 32 | b) >> (c & 31))"),
    ("ALIGNBYTE_B32", "(u32)(((u64)a << 32 | b) >> (c % 4 * 8))"),
):
    vector(f"V_{_name}", "u32 u32 u32 -> u32", _expression)
vector("V_LSHL_ADD_U64", "u64 u32 u64 -> u64", "(a << (b & 7)) + c")
vector("V_BFE_I32", "i32 u32 u32 -> i32", "(i32)extract_i(a, b, c & 31, 32)")
vector("V_BFM_B32", "u32 u32 -> u32", "((1u << (a & 31)) - 1) << (b & 31)")
vector("V_BITOP3_B16", "u16 u16 u16 table -> u16", "(u16)bitop3(a, b, c, (u64)insn->x[2])")
vector("V_BITOP3_B32", "u32 u32 u32 table -> u32", "bitop3(a, b, c, (u64)insn->x[2])")
vector("V_CNDMASK_B16", "u16 u16 mask -> u16", "(u16)((c & b) | (~c & a))")
vector("V_CNDMASK_B32", "u32 u32 mask -> u32", "(c & b) | (~c & a)")
vector("V_PACK_B32_F16", "f16 f16 -> u32", "of_f16(a) | (u32)of_f16(b) << 16")

# ---------------------------------------------------------------------------------------------
# Integers

vector("V_MUL_HI_U32", "u32 u32 -> u32", "(u32)((u64)a * b >> 32)")
vector("V_MUL_HI_I32", "i32 i32 -> i32", "(i32)((i64)a * b >> 32)")
vector("V_MUL_U32_U24", "u32 u32 -> u32", f"(a & {_M24}) * (b & {_M24})")
vector("V_MUL_HI_U32_U24", "u32 u32 -> u32", f"(u32)((u64)(a & {_M24}) * (b & {_M24}) >> 32)")
_low_a, _low_b = _LOW24.format("a"), _LOW24.format("b")
vector("V_MUL_I32_I24", "i32 i32 -> i32", f"{_low_a} * {_low_b}")
vector("V_MUL_HI_I32_I24", "i32 i32 -> i32", f"(i32)((i64){_low_a} * {_low_b} >> 32)")
_product = f"(a & {_M24}) * (b & {_M24}) + c"
vector("V_MAD_U32_U24", "u32 u32 u32 -> u32", _product, _product)
vector(
    *("V_MAD_I32_I24", "i32 i32 i32 -> i32", f"{_low_a} * {_low_b} + c"),
    "((i32)a << 8 >> 8) * (i64)((i32)b << 8 >> 8) + c",
)
vector("V_MAD_U32_U16", "u16 u16 u32 -> u32", "(u32)a * b + c", "a * b + c")
vector("V_MAD_I32_I16", "i16 i16 i32 -> i32", "(i32)a * b + c", "a * b + c")
_sum = "(a > b ? a - b : b - a) + c"
vector("V_SAD_U32", "u32 u32 u32 -> u32", _sum, _sum)
vector("V_SAD_U16", "u32 u32 u32 -> u32", "sad(a, b, 16) + c", "(i64)sad((u32)a, (u32)b, 16) + c")
vector("V_SAD_U8", "u32 u32 u32 -> u32", "sad(a, b, 8) + c", "(i64)sad((u32)a, (u32)b, 8) + c")
vector(
    *("V_SAD_HI_U8", "u32 u32 u32 -> u32", "(sad(a, b, 8) << 16) + c"),
    "((i64)sad((u32)a, (u32)b, 8) << 16) + c",
)
vector("V_MSAD_U8", "u32 u32 u32 -> u32", "msad(a, b) + c", "(i64)msad((u32)a, (u32)b) + c")
# Sums of products of parts of registers; bits 0 and 1 of a number say which have a sign.
for _name, _bits, _signs in (
    *(("DOT2_I32_I16", 16, 3), ("DOT4_I32_I8", 8, 3), ("DOT8_I32_I4", 4, 3)),
    *(("DOT2_U32_U16", 16, 0), ("DOT4_U32_U8", 8, 0), ("DOT8_U32_U4", 4, 0)),
    *(("DOT2C_I32_I16", 16, 3), ("DOT4C_I32_I8", 8, 3), ("DOT8C_I32_I4", 4, 3)),
):
    _type, _added = _name.split("_")[1].lower(), "dst" if "C" in _name else ""
    _dot = f"{_bits}, {_signs}) + c"
    _kinds = f"u32 u32 {_added or _type} -> {_type}"
    vector(f"V_{_name}", _kinds, f"dot(a, b, {_dot}", f"dot((u32)a, (u32)b, {_dot}")
for _name, _bits in (("DOT4_I32_IU8", 8), ("DOT8_I32_IU4", 4)):
    _dot = f"{_bits}, insn->x[2]) + c"
    _kinds = "u32 u32 i32 signs -> i32"
    vector(f"V_{_name}", _kinds, f"dot(a, b, {_dot}", f"dot((u32)a, (u32)b, {_dot}")
# Rounded once.
for _kind in ("F16", "BF16"):
    _expression = f"dot2_{_kind.lower()}(a, b, c)"
    vector(f"V_DOT2_F32_{_kind}", "u32 u32 f32 -> f32", _expression)
    vector(f"V_DOT2C_F32_{_kind}", "u32 u32 dst -> f32", _expression)
    vector(f"V_DOT2ACC_F32_{_kind}", "u32 u32 dst -> f32", _expression)
vector("V_MAD_U64_U32", "u32 u32 u64 -> u64 mask", "u64 p = (u64)a * b; u64 t = p + c; t; t < p")
# Bit 64 of the exact sum: its sign, which an overflow turns.
vector(
    *("V_MAD_I64_I32", "i32 i32 i64 -> i64 mask"),
    "i64 p = (i64)a * b; i64 t = p + c; t;(t < 0) ^ (((p ^ t) & (c ^ t)) < 0)",
)
vector("V_ADD_CO_U32", "u32 u32 -> u32 mask", f"{_SUM}; {_CARRY}")
vector("V_SUB_CO_U32", "u32 u32 -> u32 mask", "a - b; b > a")
vector("V_SUBREV_CO_U32", "u32 u32 -> u32 mask", "b - a; a > b")
vector("V_ADDC_CO_U32", "u32 u32 mask -> u32 mask", f"{_SUM} + (c & 1); {_CARRY}")
for _name, _from, _take in (("SUBB", "a", "b"), ("SUBBREV", "b", "a")):
    _expression = f"u64 t = (u64){_take} + (c & 1); (u32)({_from} - t); t > {_from}"
    vector(f"V_{_name}_CO_U32", "u32 u32 mask -> u32 mask", _expression)

# ---------------------------------------------------------------------------------------------
# Floats

for _type in ("f16", "f32"):
    vector(f"V_FMAMK_{_type.upper()}", f"{_type} lit {_type} -> {_type}", f"fma_{_type}(a, b, c)")
    vector(f"V_FMAAK_{_type.upper()}", f"{_type} {_type} lit -> {_type}", f"fma_{_type}(a, b, c)")
# CDNA2's own: the product is rounded, too.
vector("V_MAD_F32", "f32 f32 f32 -> f32", "a * b + c")
vector("V_MAC_F32", "f32 f32 dst -> f32", "a * b + c")
vector("V_MADMK_F32", "f32 lit f32 -> f32", "a * b + c")
vector("V_MADAK_F32", "f32 f32 lit -> f32", "a * b + c")
_UNARY = {
    "V_RCP_F16": "(f16)(1.0f / (f32)a)",
    **{"V_RCP_F32": "1.0f / a", "V_RCP_IFLAG_F32": "1.0f / a", "V_RCP_F64": "1.0 / a"},
    "V_RSQ_F16": "(f16)(1.0f / (f32)(f16)root((f32)a))",
    **{"V_RSQ_F32": "(f32)(1.0 / root_f64((f64)a))", "V_RSQ_F64": "1.0 / root_f64(a)"},
    "V_SQRT_F16": "(f16)root((f32)a)",
    **{"V_SQRT_F32": "root(a)", "V_SQRT_F64": "root_f64(a)"},
    **{"V_EXP_F16": "(f16)power_of_2((f32)a)", "V_EXP_F32": "power_of_2(a)"},
    **{"V_LOG_F16": "(f16)log_of_2((f32)a)", "V_LOG_F32": "log_of_2(a)"},
    **{"V_SIN_F32": "sine(a)", "V_COS_F32": "cosine(a)"},
    "V_FREXP_MANT_F16": "(f16)(f32)mantissa_of((f32)a)",
    **{f"V_FREXP_MANT_{kind}": "mantissa_of(a)" for kind in ("F32", "F64")},
}
for _name, _expression in _UNARY.items():
    _type = f"f{_name[-2:]}"
    vector(_name, f"{_type} -> {_type}", _expression)
for _name in ("EXP", "LOG", "RCP", "RSQ", "SQRT"):
    # Of scalar registers, with a scalar result.
    vector(f"V_S_{_name}_F32", "f32 -> f32", _UNARY[f"V_{_name}_F32"])
for _type in _FLOATS:
    for _name, _function in _ROUNDINGS.items():
        _expression = f"{_function}{'' if _type == 'f64' else 'f'}({'(f32)' * (_type == 'f16')}a)"
        vector(
            *(f"V_{_name}_{_type.upper()}", f"{_type} -> {_type}"),
            f"(f16){_expression}" if _type == "f16" else _expression,
        )
    vector(f"V_FRACT_{_type.upper()}", f"{_type} -> {_type}", f"fract_{_type}(a)")
vector("V_FREXP_EXP_I16_F16", "f16 -> i16", "(i16)power_of((f32)a)")
vector("V_FREXP_EXP_I32_F32", "f32 -> i32", "power_of(a)")
vector("V_FREXP_EXP_I32_F64", "f64 -> i32", "power_of(a)")
vector("V_LDEXP_F16", "f16 i16 -> f16", "(f16)scaled_f32((f32)a, b)")
vector("V_LDEXP_F32", "f32 i32 -> f32", "scaled_f32(a, b)")
vector("V_LDEXP_F64", "f64 i32 -> f64", "__builtin_ldexp(a, b)")
vector("V_TRIG_PREOP_F64", "f64 u32 -> f64", "part_of_2_over_pi(a, b & 31)")
# Of a product with 0, whatever the other factor is, 0 remains (rules of DirectX 9).
vector("V_MUL_DX9_ZERO_F32", "f32 f32 -> f32", "a == 0 || b == 0 ? 0 : a * b")
vector(
    *("V_FMA_DX9_ZERO_F32", "f32 f32 f32 -> f32"),
    "int zero = a == 0 || b == 0; fma_f32(zero ? 0 : a, zero ? 0 : b, c)",
)
# The three steps of a division. LLVM emits them for a correctly rounded division. The vendor's
# pseudocode scales a large denominator up instead of down, and passes over quotients that are too
# large.
for _type in ("f32", "f64"):
    _three, _name = f"{_type} {_type} {_type}", _type.upper()
    vector(
        *(f"V_DIV_SCALE_{_name}", f"{_three} -> {_type} mask"),
        f"u32 flag; {_type} r = div_scale_{_type}(a, b, c, &flag);r; flag",
    )
    vector(f"V_DIV_FMAS_{_name}", f"{_three} vcc -> {_type}", f"div_fmas_{_type}(a, b, c, d)")
for _type in _FLOATS:
    _three = f"{_type} {_type} {_type} -> {_type}"
    vector(f"V_DIV_FIXUP_{_type.upper()}", _three, f"div_fixup_{_type}(a, b, c)")

# ---------------------------------------------------------------------------------------------
# Conversions

for _to, _from in (
    *(("f32", "u32"), ("f32", "i32"), ("f32", "f16"), ("f32", "f64"), ("f16", "f32")),
    *(("f16", "u16"), ("f16", "i16"), ("f64", "f32"), ("f64", "i32"), ("f64", "u32")),
    *(("u32", "f32"), ("i32", "f32"), ("u32", "f64"), ("i32", "f64"), ("u16", "f16")),
    *(("i16", "f16"), ("i32", "i16"), ("u32", "u16")),
):
    _expression = "(f16)(f32)a" if _to == "f16" and _from != "f32" else f"({_to})a"
    if _to[0] != "f" and _from[0] == "f":
        _expression = _TO_INTEGER[_to]
    vector(f"V_CVT_{_to.upper()}_{_from.upper()}", f"{_from} -> {_to}", _expression)
vector(
    *("V_CVT_RPI_I32_F32", "f32 -> i32"),
    "(i32)saturated(__builtin_floor((f64)a + 0.5), -2147483648.0, 2147483647.0)",
)
vector(
    *("V_CVT_FLR_I32_F32", "f32 -> i32"),
    "(i32)saturated(__builtin_floorf(a), -2147483648.0, 2147483647.0)",
)
for _byte in range(4):
    vector(f"V_CVT_F32_UBYTE{_byte}", "u32 -> f32", f"(f32)(a >> {8 * _byte} & 0xFF)")
for _name, _from, _expression in (
    ("PKRTZ_F16_F32", "f32", "f16_toward_zero(a) | f16_toward_zero(b) << 16"),
    ("PK_F16_F32", "f32", "of_f16((f16)a) | (u32)of_f16((f16)b) << 16"),
    ("PK_BF16_F32", "f32", "bf16_bits(a) | bf16_bits(b) << 16"),
    ("PK_U16_U32", "u32", "min_u32(a, 0xFFFF) | min_u32(b, 0xFFFF) << 16"),
    (
        *("PK_I16_I32", "i32"),
        "(u16)max_i32(min_i32(a, 32767), -32768) | "
        "(u32)(u16)max_i32(min_i32(b, 32767), -32768) << 16",
    ),
):
    vector(f"V_CVT_{_name}", f"{_from} {_from} -> u32", _expression)
# Floats of 8 bits: E4M3 (fp8) and E5M2 (bf8), by the bits of their mantissa.
for _name, _mantissa in (("FP8", 3), ("BF8", 2)):
    _rest = f"{_mantissa}, (u64)insn->x[2])"
    vector(
        *(f"V_CVT_PK_{_name}_F32", "f32 f32 fnuz -> u16"),
        f"to_float8(a, {_rest} | to_float8(b, {_rest} << 8",
    )
    vector(f"V_CVT_F32_{_name}", "u32 fnuz -> f32", f"from_float8(a & 0xFF, {_rest}")
    vector(
        *(f"V_CVT_PK_F32_{_name}", "u32 fnuz -> u64"),
        f"of_f32(from_float8(a & 0xFF, {_rest})"
        f" | (u64)of_f32(from_float8(a >> 8 & 0xFF, {_rest}) << 32",
    )


# ---------------------------------------------------------------------------------------------
# Comparisons (VOPC), made from their names: a bit a lane; V_CMPX writes EXEC too


def _comparisons(kind: str) -> Iterator[tuple[str, str]]:
    """Yield name and expression of each comparison of a type."""
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
    # Less or greater: not so for NaNs, for which "not equal" (NEQ) holds.
    less_or_greater = f"({a} < {b} || {a} > {b})"
    yield from (("F", "0"), ("TRU", "1"), ("O", ordered), ("U", f"!{ordered}"))
    yield from (("LG", less_or_greater), ("NLG", f"!{less_or_greater}"), ("NEQ", f"{a} != {b}"))


for _prefix in ("V_CMP", "V_CMPX"):
    for _type in SIZES:
        for _name, _expression in _comparisons(_type):
            _full = f"{_prefix}_{_name}_{_type.upper()}"
            vector(_full, f"{_type} {_type} -> mask", _expression)
    for _type in _FLOATS:
        _full = f"{_prefix}_CLASS_{_type.upper()}"
        vector(_full, f"{_type} u32 -> mask", f"class_{_type}(a, b)")

# ---------------------------------------------------------------------------------------------
# Scalar operations: a result other than 0 sets SCC, if there is no expression of SCC

scalar("S_MOV_B32", "u32 -> u32", "a")
scalar("S_MOV_B64", "u64 -> u64", "a")
scalar("S_MOVK_I32", "k -> i32", "a")
scalar("S_CMOV_B32", "u32 scc dst -> u32", "b ? a : c")
scalar("S_CMOVK_I32", "k scc dst -> i32", "b ? a : c")
scalar("S_CSELECT_B32", "u32 u32 scc -> u32", "c ? a : b")
scalar("S_CSELECT_B64", "u64 u64 scc -> u64", "c ? a : b")
scalar("S_MUL_I32", "u32 u32 -> u32", "a * b")
scalar("S_MUL_HI_U32", "u32 u32 -> u32", "(u32)((u64)a * b >> 32)")
scalar("S_MUL_HI_I32", "i32 i32 -> i32", "(i32)((i64)a * b >> 32)")
scalar("S_MULK_I32", "dst k -> i32", "a * b")
for _type in ("i32", "u32"):
    _kinds = f"{_type} {_type} -> {_type} scc"
    scalar(f"S_MIN_{_type.upper()}", _kinds, "a < b ? a : b; a < b")
    scalar(f"S_MAX_{_type.upper()}", _kinds, "a > b ? a : b; a >= b")
scalar("S_ABS_I32", "i32 -> i32 scc", "a < 0 ? -a : a")
scalar("S_ABSDIFF_I32", "i32 i32 -> i32 scc", "i32 t = a - b; t < 0 ? -t : t")
_OVERFLOW = "i32 t = a {0} b; t; ((a ^ {1}) & ({2} ^ t)) < 0"
scalar("S_ADD_I32", "i32 i32 -> i32 scc", _OVERFLOW.format("+", "t", "b"))
scalar("S_SUB_I32", "i32 i32 -> i32 scc", _OVERFLOW.format("-", "b", "a"))
scalar("S_ADDK_I32", "dst k -> i32 scc", _OVERFLOW.format("+", "t", "b"))
scalar("S_ADD_U32", "u32 u32 -> u32 scc", "u32 t = a + b; t; t < a")
scalar("S_SUB_U32", "u32 u32 -> u32 scc", "a - b; b > a")
scalar("S_ADDC_U32", "u32 u32 scc -> u32 scc", f"{_SUM} + (c & 1); {_CARRY}")
scalar(
    *("S_SUBB_U32", "u32 u32 scc -> u32 scc"),
    "u64 t = (u64)b + (c & 1); (u32)(a - t); t > a",
)
for _bits in (1, 2, 3, 4):
    _expression = f"u64 t = ((u64)a << {_bits}) + b; {_CARRY}"
    scalar(f"S_LSHL{_bits}_ADD_U32", "u32 u32 -> u32 scc", _expression)
scalar("S_SEXT_I32_I8", "u32 -> i32", "(i8)a")
scalar("S_SEXT_I32_I16", "u32 -> i32", "(i16)a")
scalar("S_BITSET0_B32", "u32 dst -> u32", "b & ~(1u << (a & 31))")
scalar("S_BITSET1_B32", "u32 dst -> u32", "b | 1u << (a & 31)")
scalar("S_BFM_B32", "u32 u32 -> u32", "((1u << (a & 31)) - 1) << (b & 31)")
scalar("S_BFM_B64", "u32 u32 -> u64", "(((u64)1 << (a & 63)) - 1) << (b & 63)")
scalar("S_PACK_LL_B32_B16", "u32 u32 -> u32", "(a & 0xFFFF) | b << 16")
scalar("S_PACK_LH_B32_B16", "u32 u32 -> u32", "(a & 0xFFFF) | (b & 0xFFFF0000)")
scalar("S_PACK_HL_B32_B16", "u32 u32 -> u32", "a >> 16 | b << 16")
scalar("S_PACK_HH_B32_B16", "u32 u32 -> u32", "a >> 16 | (b & 0xFFFF0000)")
scalar("S_FLBIT_I32", "i32 -> u32", "leading((u32)(a < 0 ? ~a : a), 32)")
#: Operations that save EXEC and change it.
_SAVES = {**_LOGIC, "ANDN1": "~a & b", "ORN1": "~a | b"}
for _width in (32, 64):
    _u, _i = f"u{_width}", f"i{_width}"
    for _name, _expression in _LOGIC.items():
        scalar(f"S_{_name}_B{_width}", f"{_u} {_u} -> {_u} scc", _expression)
    for _name, _kinds, _expression in (
        (f"LSHL_B{_width}", f"{_u} u32 -> {_u} scc", f"a << (b & {_width - 1})"),
        (f"LSHR_B{_width}", f"{_u} u32 -> {_u} scc", f"a >> (b & {_width - 1})"),
        (f"ASHR_I{_width}", f"{_i} u32 -> {_i} scc", f"a >> (b & {_width - 1})"),
        (f"NOT_B{_width}", f"{_u} -> {_u} scc", "~a"),
        (f"BREV_B{_width}", f"{_u} -> {_u}", f"reversed(a, {_width})"),
        (f"BCNT1_I32_B{_width}", f"{_u} -> u32 scc", "(u32)__builtin_popcountll(a)"),
        (
            *(f"BCNT0_I32_B{_width}", f"{_u} -> u32 scc"),
            f"(u32)({_width} - __builtin_popcountll(a))",
        ),
        (f"FF1_I32_B{_width}", f"{_u} -> u32", "first_one(a)"),
        (f"FF0_I32_B{_width}", f"{_u} -> u32", f"first_one(({_u})~a)"),
        (f"FLBIT_I32_B{_width}", f"{_u} -> u32", f"leading(a, {_width})"),
        (f"BITCMP0_B{_width}", f"{_u} u32 -> scc", f"(a >> (b & {_width - 1}) & 1) == 0"),
        (f"BITCMP1_B{_width}", f"{_u} u32 -> scc", f"(a >> (b & {_width - 1}) & 1) == 1"),
        # Offset of a field, and in bits 16 to 22 its size.
        (f"BFE_U{_width}", f"{_u} u32 -> {_u} scc", f"extract_u(a, b, b >> 16 & 0x7F, {_width})"),
        (f"BFE_I{_width}", f"{_i} u32 -> {_i} scc", f"extract_i(a, b, b >> 16 & 0x7F, {_width})"),
    ):
        scalar(f"S_{_name}", _kinds, _expression)
    _kinds = f"{_u} exec -> {_u} exec scc"
    for _name, _expression in _SAVES.items():
        _saved = f"{_u} t = {_expression}; b; t; t != 0"
        scalar(f"S_{_name}_SAVEEXEC_B{_width}", _kinds, _saved)
    for _name in ("ANDN1", "ANDN2"):
        _expression = f"{_u} t = {_SAVES[_name]}; t; t; t != 0"
        scalar(f"S_{_name}_WREXEC_B{_width}", _kinds, _expression)
for _name, _sign in _COMPARE.items():
    _name = _name.replace("NE", "LG")
    for _type, _constant in (("i32", "k"), ("u32", "ku")):
        _expression = f"a {_sign} b"
        scalar(f"S_CMP_{_name}_{_type.upper()}", f"{_type} {_type} -> scc", _expression)
        # The constant has the sign of the comparison.
        _kinds = f"dst:{_type} {_constant} -> scc"
        scalar(f"S_CMPK_{_name}_{_type.upper()}", _kinds, _expression)
scalar("S_CMP_EQ_U64", "u64 u64 -> scc", "a == b")
scalar("S_CMP_LG_U64", "u64 u64 -> scc", "a != b")

# RDNA4's own
scalar("S_ADD_NC_U64", "u64 u64 -> u64", "a + b")
scalar("S_SUB_NC_U64", "u64 u64 -> u64", "a - b")
scalar("S_MUL_U64", "u64 u64 -> u64", "a * b")
for _name, _expression in (
    *(("ADD", "a + b"), ("SUB", "a - b"), ("MUL", "a * b")),
    *(("MIN", "fmin_f32(a, b)"), ("MAX", "fmax_f32(a, b)")),
    *(("MAXIMUM", "maximum_f32(a, b)"), ("MINIMUM", "minimum_f32(a, b)")),
):
    scalar(f"S_{_name}_F32", "f32 f32 -> f32", _expression)
for _name, _kinds in (("FMAC", "f32 f32 dst"), ("FMAMK", "f32 lit f32"), ("FMAAK", "f32 f32 lit")):
    scalar(f"S_{_name}_F32", f"{_kinds} -> f32", "fma_f32(a, b, c)")
for _name, _function in _ROUNDINGS.items():
    scalar(f"S_{_name}_F32", "f32 -> f32", f"{_function}f(a)")
for _type in ("i32", "u32"):
    scalar(f"S_CVT_F32_{_type.upper()}", f"{_type} -> f32", "(f32)a")
    scalar(f"S_CVT_{_type.upper()}_F32", f"f32 -> {_type}", _TO_INTEGER[_type])
for _name, _expression in _comparisons("f32"):
    if _name not in ("F", "TRU"):
        scalar(f"S_CMP_{_name}_F32", "f32 f32 -> scc", _expression)
