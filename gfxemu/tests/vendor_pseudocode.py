"""Executes the vendor's pseudocode of an operation for one lane, slowly and literally."""

from __future__ import annotations

import importlib
import math
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from gfxemu.decode import ENCODING, only_tables
from gfxemu.isa import CDNA
from gfxemu.rdna import translated_name


@cache
def pseudocode(tables: str = CDNA.tables) -> Mapping[str, str]:
    """Return the pseudocode of each operation of an instruction set, by its name in CDNA."""
    with only_tables():
        table = importlib.import_module(f"tinygrad.runtime.autogen.amd.{tables}.str_pcode").PCODE
    found = {ENCODING.sub("", op.name): text for op, text in table.items()}
    if tables != CDNA.tables:
        return {translated_name(name): text for name, text in found.items()}
    return found


_TOKEN = re.compile(
    r"(?P<width>\d+)'(?P<cast>[UIFB])(?=\()|(?P<size>\d+)'(?P<sized>0x[0-9a-fA-F]+|\d+)[UIL]*"
    r"|(?P<float>\d+\.\d+)(?P<short>F?)|(?P<whole>0x[0-9a-fA-F]+|\d+)(?P<suffix>[ULF]*)"
    r"|(?P<limit>INF|NAN)(?:\.f(?P<bits>\d+))?|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<sign>&&|\|\||<>|!(?!=)|[{}])"
)
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_BITS: dict[int, Any] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class NotUnderstoodError(Exception):
    """Pseudocode that this reader does not support."""


@dataclass(frozen=True, eq=False)
class Value:
    """A typed number: kind (u, i, f or b) and width in bits."""

    kind: str
    width: int
    value: Any  # int, or NumPy's float of the width

    @property
    def bits(self) -> int:
        """The bits of the number."""
        if self.kind == "f":
            return int(np.array(self.value, _FLOATS[self.width]).view(_BITS[self.width]))
        return int(self.value) & (1 << self.width) - 1

    def as_(self, kind: str, width: int) -> Value:
        """Reinterpret the bits as another type."""
        bits = self.bits & (1 << width) - 1
        if kind == "f":
            return Value("f", width, np.array(bits, _BITS[width]).view(_FLOATS[width])[()])
        if kind == "i" and bits >> width - 1:
            bits -= 1 << width
        return Value(kind, width, bits)

    def to(self, kind: str, width: int) -> Value:
        """Convert the number to another type."""
        if kind == "f":
            return Value("f", width, _FLOATS[width](self.value))
        if self.kind == "f":
            raise NotUnderstoodError("a float made an integer by a cast")
        return Value(kind, width, int(self.value)).as_(kind, width)

    def __bool__(self) -> bool:
        """Return whether the number is not 0."""
        return bool(self.value)

    def __getattr__(self, name: str) -> Value:
        """Return the lowest bits as another type, such as u32."""
        found = re.fullmatch(r"([uifb])(\d+)", name)
        if not found:
            raise AttributeError(name)
        width = int(found[2])
        return Value("b", max(width, self.width), self.bits).as_(found[1], width)

    def __getitem__(self, place: slice | Value) -> Value:
        """Return a range of bits, reversed if the first index is the smaller one."""
        high = int((place.start if isinstance(place, slice) else place).value)
        low = int((place.stop if isinstance(place, slice) else place).value)
        size = abs(high - low) + 1
        bits = self.bits >> min(high, low) & (1 << size) - 1
        return Value("u", size, bits if high >= low else int(f"{bits:0{size}b}"[::-1], 2))


def u(value: int, width: int = 32) -> Value:
    return Value("u", width, value & (1 << width) - 1)


def f(value: Any, width: int = 32) -> Value:
    return Value("f", width, _FLOATS[width](value))


def _fma(a: Value, b: Value, c: Value) -> Value:
    x, y, z = (float(value.value) for value in (a, b, c))
    if not all(map(math.isfinite, (x, y, z))):
        return f(x * y + z, a.width)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        # Its sign is that of the sum of zeros.
        return f(math.copysign(0.0, x * y + z), a.width)
    try:
        near = float(exact)
    except OverflowError:
        return f(math.inf if exact > 0 else -math.inf, a.width)
    if a.width < 64 and near != exact:
        # Of the two neighbours the odd one: f() rounds it as it would round the exact sum.
        other = math.nextafter(near, math.inf if near < exact else -math.inf)
        near = next(v for v in (near, other) if struct.unpack("<Q", struct.pack("<d", v))[0] & 1)
    return f(near, a.width)


def _to_integer(kind: str, width: int) -> Callable[[Value], Value]:
    low, high = (0, 2**width - 1) if kind == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)

    def convert(x: Value) -> Value:
        value = float(x.value)
        return Value(kind, width, 0 if math.isnan(value) else int(min(max(value, low), high)))

    return convert


def _exponent(x: Value) -> Value:
    mantissa = {16: 10, 32: 23, 64: 52}[x.width]
    return Value("i", 32, x.bits >> mantissa & (1 << x.width - 1 - mantissa) - 1)


def _is_nan(x: Value) -> Value:
    return u(math.isnan(float(x.value)), 1)


def _bf16(x: Value) -> Value:
    bits = x.bits
    if math.isnan(float(x.value)):
        return Value("b", 16, bits >> 16 | 0x40)
    return Value("b", 16, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


FUNCTIONS: dict[str, Any] = {
    "fma": _fma,
    "abs": lambda x: Value(x.kind, x.width, abs(x.value)),
    "sqrt": lambda x: f(np.sqrt(x.value), x.width),
    "floor": lambda x: f(np.floor(x.value), x.width),
    "trunc": lambda x: f(np.trunc(x.value), x.width),
    "fract": lambda x: f(x.value - np.floor(x.value), x.width),
    "log2": lambda x: f(np.log2(x.value), x.width),
    "pow": lambda x, y: f(np.power(x.value, y.value), y.width),
    "sin": lambda x: f(np.sin(np.float64(x.value)), x.width),
    "cos": lambda x: f(np.cos(np.float64(x.value)), x.width),
    "ldexp": lambda x, n: f(np.ldexp(x.value, int(n.value)), x.width),
    "isNAN": _is_nan,
    "isEven": lambda x: u(float(x.value) % 2 == 0, 1),
    "sign": lambda x: u(x.bits >> x.width - 1, 1),
    "exponent": _exponent,
    "mantissa": lambda x: f(np.frexp(x.value)[0], x.width),
    "cvtToQuietNAN": lambda x: x,
    "f32_to_bf16": _bf16,
    # These conversions saturate, which the pseudocode does not state.
    "u32_to_u16": lambda x: u(min(int(x.value), 2**16 - 1), 16),
    "i32_to_i16": lambda x: Value("i", 16, min(max(int(x.value), -(2**15)), 2**15 - 1)),
    **{
        f"{sign}{bits}_to_{sign}32": lambda x, sign=sign, bits=bits: x.as_(sign, bits).to(sign, 32)
        for sign in "iu"
        for bits in (4, 8, 16)
    },
    "signext": lambda x: Value("i", 64, x.as_("i", x.width).value),
    "signext_from_bit": lambda x, n: Value(
        *("i", x.width),
        u(int(x.value), int(n.value)).as_("i", int(n.value)).value if n.value else 0,
    ),
}
for _from, _to in (
    *(("f32", "f16"), ("f16", "f32"), ("f32", "f64"), ("f64", "f32"), ("u32", "f32")),
    *(("i32", "f32"), ("u32", "f64"), ("i32", "f64"), ("u16", "f16"), ("i16", "f16")),
    *(("f32", "u32"), ("f32", "i32"), ("f64", "u32"), ("f64", "i32"), ("f16", "u16")),
    ("f16", "i16"),
):
    _width = int(_to[1:])
    FUNCTIONS[f"{_from}_to_{_to}"] = (
        (lambda x, width=_width: f(x.value, width))
        if _to[0] == "f"
        else _to_integer(_to[0], _width)
    )


def _f32_to_f16(x: Value) -> Value:
    if not math.isnan(float(x.value)):
        return f(x.value, 16)
    # Quiet, with the upper bits of its payload.
    return u(x.bits >> 16 & 0x8000 | 0x7E00 | x.bits >> 13 & 0x1FF, 16).as_("f", 16)


FUNCTIONS["f32_to_f16"] = _f32_to_f16


def _larger(x: Value, y: Value, sign: int) -> Value:
    if math.isnan(float(x.value)) or math.isnan(float(y.value)):
        return y if math.isnan(float(x.value)) else x
    return x if sign * x.value >= sign * y.value else y


for _name in ("f32", "f16", "i32", "u32"):
    FUNCTIONS |= {
        f"v_max_{_name}": lambda x, y: _larger(x, y, 1),
        f"v_min_{_name}": lambda x, y: _larger(x, y, -1),
        f"v_max3_{_name}": lambda x, y, z: _larger(_larger(x, y, 1), z, 1),
        f"v_min3_{_name}": lambda x, y, z: _larger(_larger(x, y, -1), z, -1),
    }


def _propagating(x: Value, y: Value, sign: int) -> Value:
    if math.isnan(float(x.value)) or math.isnan(float(y.value)):
        return f(math.nan, x.width)
    return _larger(x, y, sign)


FUNCTIONS |= {
    "v_maximum_f32": lambda x, y: _propagating(x, y, 1),
    "v_minimum_f32": lambda x, y: _propagating(x, y, -1),
}


@cache
def _lines(text: str) -> list[str]:
    """Split pseudocode into statements."""
    text = re.sub(r"//[^\n]*", "", text)
    # IEEE mode is off, and a conversion to f64 would quiet signaling NaNs: skip the test.
    text = re.sub(r"\(WAVE_MODE\.IEEE && isSignalNAN\(64'F\(S\d\.f\d+\)\)\)", "0", text)
    text = re.sub(r"\(WAVE_MODE\.IEEE && isSignalNAN\(S\d\.f\d+\)\)", "0", text)
    if "lambda" in text or "VGPR" in text or "MEM[" in text:
        raise NotUnderstoodError("lambdas, other lanes and memory")
    lines = [line.strip() for line in re.split(r";|\n", text) if line.strip()]
    # A statement continues until its parentheses are closed.
    joined: list[str] = []
    for line in lines:
        open_ = joined and joined[-1].count("(") > joined[-1].count(")")
        if open_:
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


def _python(text: str) -> str:
    """Translate an expression to Python; the used operators have the same precedence there."""
    if "?" in text:
        marks = {"?": -1, ":": -1}
        depth = 0
        for at, sign in enumerate(text):
            depth += (sign in "([{") - (sign in ")]}")
            if depth == 0 and marks.get(sign) == -1 and (sign == "?" or marks["?"] >= 0):
                marks[sign] = at
        first, second = marks["?"], marks[":"]
        if min(first, second) < 0:
            raise NotUnderstoodError(text)
        parts = text[first + 1 : second], text[:first], text[second + 1 :]
        value, condition, other = map(_python, parts)
        return f"(({value}) if ({condition}) else ({other}))"

    def token(found: re.Match[str]) -> str:
        if found["cast"]:
            return f"to({found['cast'].lower()!r}, {found['width']})"
        if found["sized"]:
            return f"u({found['sized']}, {found['size']})"
        if found["float"]:
            return f"f({found['float']}, {32 if found['short'] else 64})"
        if found["whole"]:
            kind, width = "iu"["U" in found["suffix"]], 64 if "LL" in found["suffix"] else 32
            return f"Value({kind!r}, {width}, {found['whole']})"
        if found["limit"]:
            return f"f(math.{found['limit'].lower()}, {found['bits'] or 64})"
        signs = {"&&": " and ", "||": " or ", "<>": "@", "!": " not ", "{": "joined(", "}": ")"}
        return found["name"] or signs[found["sign"]]

    return _TOKEN.sub(token, text.strip())


def _statement(line: str) -> str:
    """Translate an assignment to a call of put."""
    # Assign the last target first: a = b = c.
    *targets, value = re.split(r"(?<![=!<>+\-|&^])=(?!=)", line)
    result = _python(value)
    if not targets:
        compound = re.match(r"(.+?)\s*([-+|&^])=\s*(.+)$", line)
        if not compound:
            raise NotUnderstoodError(line)
        targets = [compound[1]]
        result = f"{_python(compound[1])} {compound[2]} ({_python(compound[3])})"
    return f"put({[target.strip() for target in reversed(targets)]!r}, {result})"


@cache
def _compiled(text: str) -> CodeType:
    source, depth = [], 0
    for line in _lines(text):
        word = line.partition(" ")[0]
        depth -= word in ("elsif", "else", "endif", "endfor")
        code = ""
        if word in ("if", "elsif"):
            condition = _python(line.partition(" ")[2].removesuffix("then"))
            code = f"{'if' if word == 'if' else 'elif'} {condition}:"
        elif found := re.match(r"for (\w+) in (.+) : (.+) do$", line):
            code = f"for {found[1]} in loop({_python(found[2])}, {_python(found[3])}):"
        elif word in ("else", "break"):
            code = "else:" if word == "else" else "break"
        # Rounding is always to nearest even.
        elif word not in ("declare", "endif", "endfor") and "ROUND_" not in line:
            code = _statement(line)
        source.append("    " * depth + (code or "pass"))
        depth += word in ("if", "elsif", "else", "for")
    try:
        return compile("\n".join(source), "pseudocode", "exec")
    except SyntaxError as error:
        raise NotUnderstoodError(text) from error


@dataclass
class Lane:
    """The variables of one lane: registers by their names in pseudocode."""

    values: dict[str, Value] = field(default_factory=dict)

    def run(self, text: str) -> None:
        """Run all statements."""
        exec(_compiled(text), FUNCTIONS | {"put": self._put}, self.values)

    def expression(self, text: str) -> Value:
        """Evaluate an expression."""
        value: Value = eval(_python(text), dict(FUNCTIONS), self.values)
        return value

    def _put(self, targets: list[str], value: Value | bool) -> None:
        for target in targets:
            self._assign(target, value if isinstance(value, Value) else u(value, 1))

    def _assign(self, target: str, value: Value) -> None:
        if target.startswith("{"):
            names = [part.strip() for part in target.strip("{} ").split(",")]
            raw = value.bits
            for name in reversed(names):
                width = int(re.findall(r"\d+$", name)[0])
                self._assign(name, u(raw & (1 << width) - 1, width))
                raw >>= width
            return
        found = re.match(
            r"(\w+)(?:\.(bf|[uifb])(\d+))?(?:\[\s*([^:\]]+?)\s*(?::\s*([^\]]+?)\s*)?\])?"
            r"(?:\.(bf|[uifb])(\d+))?$",
            target,
        )
        if not found:
            raise NotUnderstoodError(target)
        name, kind, high, low = found[1], found[2] or found[6], found[4], found[5]
        if high is not None:
            top = int(self.expression(high).value)
            bottom = int(self.expression(low).value) if low else top
            kind_, size = found[6] or "b", top - bottom + 1
            part = self._converted(value, kind_, size) if found[6] else value
            old = self.values.get(name, u(0, 64))
            mask = (1 << size) - 1 << bottom
            bits = old.bits & ~mask | (part.bits & (1 << size) - 1) << bottom
            self.values[name] = Value("b", max(old.width, top + 1), bits)
        elif kind:
            self.values[name] = self._converted(value, kind, int(found[3] or found[7]))
        else:
            self.values[name] = value

    @staticmethod
    def _converted(value: Value, kind: str, width: int) -> Value:
        if kind == "bf" or (kind == "b" or value.kind == "b"):
            kind = "b" if kind == "bf" else kind
            return Value("b", max(width, value.width), value.bits).as_(kind, width)
        if (kind == "f") != (value.kind == "f"):
            # Reinterpret the bits of a constant such as 0xffc00000, or of another type.
            return Value("b", max(width, value.width), value.bits).as_(kind, width)
        return value.to(kind, width)


def _joined(*parts: Value) -> Value:
    bits, width = 0, 0
    for part in parts:
        bits, width = bits << part.width | part.bits, width + part.width
    return Value("b", width, bits)


def _cast(kind: str, width: int) -> Callable[[Value], Value]:
    def cast(value: Value) -> Value:
        if kind == "f" and value.kind != "f" and value.bits > 0xFFFF:
            return value.as_("f", width)
        return value.as_("b", width) if kind == "b" else value.to(kind, width)

    return cast


class _Modes:
    IEEE = u(0, 1)


FUNCTIONS |= {
    **{"to": _cast, "joined": _joined, "u": u, "f": f, "Value": Value, "math": math},
    **{"PI": f(math.pi, 64), "WAVE_MODE": _Modes},
    "loop": lambda a, b: [Value("i", 32, n) for n in range(int(a.value), int(b.value) + 1)],
}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{"==": operator.eq, "!=": operator.ne, "@": lambda x, y: x < y or x > y},
    **{"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul},
    **{"&": operator.and_, "|": operator.or_, "^": operator.xor},
    **{"<<": operator.lshift, ">>": operator.rshift, "%": operator.mod},
}


def _operate(sign: str, a: Value, b: Value) -> Value:
    if sign in _COMPARISONS:
        return u(bool(_COMPARISONS[sign](a.value, b.value)), 1)
    if sign in ("<<", ">>"):
        shifted = _ARITHMETIC[sign](int(a.value), int(b.value))
        return Value(a.kind, a.width, shifted).as_(a.kind, a.width)
    if "f" in (a.kind, b.kind):
        width = max(v.width for v in (a, b) if v.kind == "f")
        x, y = (_FLOATS[width](v.value) for v in (a, b))
        if sign == "**":
            return f(np.power(np.float64(x), np.float64(y)), width)
        return f(np.divide(x, y) if sign == "/" else _ARITHMETIC[sign](x, y), width)
    width = max(a.width, b.width)
    kind = "i" if a.kind == "i" and b.kind == "i" else "u"
    whole = {"/": operator.floordiv, "**": operator.pow} | _ARITHMETIC
    return Value(kind, width, int(whole[sign](int(a.value), int(b.value)))).as_(kind, width)


for _sign, _method in {
    **{"+": "add", "-": "sub", "*": "mul", "/": "truediv", "%": "mod", "**": "pow", "&": "and"},
    **{"|": "or", "^": "xor", "<<": "lshift", ">>": "rshift", "@": "matmul"},
    **{"==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge"},
}.items():
    setattr(Value, f"__{_method}__", lambda a, b, sign=_sign: _operate(sign, a, b))
for _method, _function in {
    "neg": operator.neg,
    "invert": operator.invert,
    "pos": operator.pos,
}.items():
    setattr(
        Value,
        f"__{_method}__",
        lambda a, function=_function: Value(a.kind, a.width, function(a.value)).to(a.kind, a.width),
    )
