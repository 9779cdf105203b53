"""Writes operations.h: a function in C for each operation of the table, for engine.c."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gfxemu.operations import PACKED, SCALAR, SIZES, VECTOR, Operation

_VECTORS = {**VECTOR, **PACKED}
#: Names of operations by their number in the engine; those with a clamp follow the others.
VECTOR_NAMES: Sequence[str] = sorted(name for name, one in _VECTORS.items() if one.expression)
CLAMPED_NAMES: Sequence[str] = sorted(name for name, one in _VECTORS.items() if one.clamped)
SCALAR_NAMES: Sequence[str] = sorted(SCALAR)
#: Operands that are not values of lanes.
FIXED = ("table", "fnuz", "signs")

#: Coefficients of powers of 2 between -0.5 and 0.5, the constant first.
_EXP2 = tuple(math.log(2) ** power / math.factorial(power) for power in range(12))
#: Those of s, s**3, ... of the logarithm of (1 + s) / (1 - s) to base 2.
_LOG2 = tuple(2 / math.log(2) / power for power in range(1, 20, 2))

#: Bits of 2 / pi behind the point, of which V_TRIG_PREOP_F64 selects 53.
_PI_BITS = 1201


def _two_over_pi() -> int:
    """Return 2 / pi times 2 to the number of its bits (Machin's formula)."""
    one = 1 << _PI_BITS + 64

    def arctan(inverse: int) -> int:
        power = total = one // inverse
        for odd in range(3, 2 * _PI_BITS, 2):
            power //= -inverse * inverse
            total += power // odd
        return total

    return (one << _PI_BITS + 1) // (4 * (4 * arctan(5) - arctan(239)))


_LETTERS = "abcd"


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
    return f"of_{kind}({value})" if kind[0] == "f" else f"(u{kind[1:]}){value}"


def _parts(operation: Operation) -> tuple[list[str], list[str]]:
    """Return the statements and the results of an expression."""
    parts = [part.strip() for part in operation.expression.split(";")]
    count = len(operation.outputs)
    # A scalar operation with one result sets SCC if it is not 0.
    if operation.outputs[-1] == "scc" and len(operation.outputs) == 2 and _single(parts):
        parts.append("r != 0")
    return parts[:-count], parts[-count:]


def _single(parts: Sequence[str]) -> bool:
    return sum(1 for part in parts if not part.startswith(("u64 ", "u32 ", "i32 ", "i64 "))) == 1


#: The loop over the lanes of a wave, a multiple of 32.
_LOOP = ("  lanes &= ~31;", "  for (int l = 0; l < lanes; l++) {")


def _begin(prefix: str, operation: Operation) -> list[str]:
    """Return the first lines of a function of values of lanes, up to its loop."""
    values = [kind for kind in operation.inputs if kind not in FIXED]
    lines = [f"static void {prefix}_{operation.name}(VECTOR_PARAMETERS) {{"]
    for place, kind in enumerate(values):
        bits = "u64" if SIZES[type_of(kind, operation)] == 8 else "u32"
        lines.append(f"  const {bits} *restrict p{place} = p[{place}];")
    wide = SIZES.get(operation.outputs[0]) == 8
    lines.append(f"  {'u64' if wide else 'u32'} *restrict o = out; u32 *restrict m = flags;")
    return [*lines, *_LOOP]


_END = ("  }", "  (void)p, (void)o, (void)m, (void)insn;", "}")


def _vector_function(operation: Operation) -> str:
    values = [kind for kind in operation.inputs if kind not in FIXED]
    kind = operation.outputs[0]
    lines = _begin("v", operation)
    for place, operand in enumerate(values):
        of = type_of(operand, operation)
        lines.append(f"    {of} {_LETTERS[place]} = {_from_bits(of, f'p{place}[l]')};")
    lines.append(f"    {' '.join(f'(void){letter};' for letter in _LETTERS[: len(values)])}")
    statements, results = _parts(operation)
    lines += [f"    {part};" for part in statements]
    if kind == "mask":
        lines.append(f"    m[l] = {results[0]};")
    else:
        if results[0] != "r":
            lines.append(f"    {kind} r = ({kind})({results[0]});")
        lines.append(f"    o[l] = {_to_bits(kind, 'r')};")
        if len(results) > 1:
            lines.append(f"    m[l] = {results[1]};")
    return "\n".join([*lines, *_END])


def _clamped_function(operation: Operation) -> str:
    """Return the function of an operation of integers that clamps its result."""
    kind = operation.outputs[0]
    lines = _begin("c", operation)
    values = [kind for kind in operation.inputs if kind not in FIXED]
    for place, operand in enumerate(values):
        lines.append(f"    i64 {_LETTERS[place]} = ({type_of(operand, operation)})p{place}[l];")
    low, high = (0, 2 ** int(kind[1:]) - 1)
    if kind[0] == "i":
        low, high = -(high // 2) - 1, high // 2
    lines.append(f"    i64 r = {operation.clamped};")
    lines.append(f"    r = r < {low}ll ? {low}ll : r > {high}ll ? {high}ll : r;")
    return "\n".join([*lines, "    o[l] = (u32)r;", *_END])


def _scalar_function(operation: Operation) -> str:
    lines = [f"static u64 s_{operation.name}(u64 p0, u64 p1, u64 p2, u32 *scc, u64 *exec) {{"]
    for place, kind in enumerate(operation.inputs):
        of = type_of(kind, operation)
        lines.append(f"  {of} {_LETTERS[place]} = {_from_bits(of, f'p{place}')};")
    statements, results = _parts(operation)
    lines += [f"  {part};" for part in statements]
    result = "0"
    for kind, value in zip(operation.outputs, results, strict=True):
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
    constants = [f"#define EXP2_{power} {value.hex()}" for power, value in enumerate(_EXP2)]
    constants += [
        f"#define LOG2_{2 * place + 1} {value.hex()}" for place, value in enumerate(_LOG2)
    ]
    # With zeros behind them: 32-bit words, the first bits first.
    words = -(-_PI_BITS // 32)
    bits = _two_over_pi() << 32 * words - _PI_BITS
    parts = [f"{bits >> 32 * place & 0xFFFFFFFF:#x}" for place in reversed(range(words))]
    constants.append(f"#define TWO_OVER_PI {', '.join(parts)}")
    functions = [_vector_function(_VECTORS[name]) for name in VECTOR_NAMES]
    functions += [_clamped_function(_VECTORS[name]) for name in CLAMPED_NAMES]
    functions += [_scalar_function(SCALAR[name]) for name in SCALAR_NAMES]
    vectors = [f"v_{name}" for name in VECTOR_NAMES] + [f"c_{name}" for name in CLAMPED_NAMES]
    scalars = [f"s_{name}" for name in SCALAR_NAMES]
    return "\n".join(
        [
            "// Written by gfxemu/expressions.py.",
            "#ifdef QOLA_CONSTANTS",
            *constants,
            "#else",
            *functions,
            f"VectorOp *const qola_vector_ops[] = {{{', '.join(vectors)}}};",
            f"ScalarOp *const qola_scalar_ops[] = {{{', '.join(scalars)}}};",
            "#endif",
            "",
        ]
    )


if __name__ == "__main__":
    print(operations_header(), end="")
