"""Runs the vendor's pseudocode of an operation for one lane: a second opinion, slow and literal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<sized>\d+'[UIFB]?(?:0x[0-9a-fA-F]+|\d+)?[UILF]*)"
    r"|(?P<number>0x[0-9a-fA-F]+[UL]*|\d+\.\d+F?|\d+[ULF]*)"
    r"|(?P<type>\.(?:u|i|f|b|bf)\d+)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Z]+)?)"
    r"|(?P<op><<|>>|<=|>=|==|!=|<>|&&|\|\||\*\*|[-+*/%&|^~!<>?:()\[\]{},=])"
    r")"
)
_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_BITS: dict[int, Any] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class NotUnderstoodError(Exception):
    """Pseudocode that says more than this reader understands."""


class _Break(Exception):  # noqa: N818
    """The end of a loop."""


@dataclass(frozen=True)
class Value:
    """A number with its type: u, i, f or b, and a width in bits."""

    kind: str
    width: int
    value: Any  # int, or NumPy's float of the width

    @property
    def bits(self) -> int:
        """The number as its bits."""
        if self.kind == "f":
            return int(np.array(self.value, _FLOATS[self.width]).view(_BITS[self.width]))
        return int(self.value) & (1 << self.width) - 1

    def as_(self, kind: str, width: int) -> Value:
        """The same bits as another type."""
        bits = self.bits & (1 << width) - 1
        if kind == "f":
            return Value("f", width, np.array(bits, _BITS[width]).view(_FLOATS[width])[()])
        if kind == "i" and bits >> width - 1:
            bits -= 1 << width
        return Value(kind, width, bits)

    def to(self, kind: str, width: int) -> Value:
        """The same number as another type."""
        if kind == "f":
            return Value("f", width, _FLOATS[width](self.value))
        if self.kind == "f":
            raise NotUnderstoodError("a float made an integer by a cast")
        return Value(kind, width, int(self.value)).as_(kind, width)

    @property
    def true(self) -> bool:
        """Whether it is not 0."""
        return bool(self.value)


def u(value: int, width: int = 32) -> Value:
    return Value("u", width, value & (1 << width) - 1)


def f(value: Any, width: int = 32) -> Value:
    return Value("f", width, _FLOATS[width](value))


def _fma(a: Value, b: Value, c: Value) -> Value:
    wide = np.longdouble(a.value) * np.longdouble(b.value) + np.longdouble(c.value)
    return f(wide, a.width)


def _to_integer(low: int, high: int, kind: str, width: int) -> Callable[[Value], Value]:
    def convert(x: Value) -> Value:
        value = float(x.value)
        if math.isnan(value):
            return Value(kind, width, 0)
        return Value(
            kind,
            width,
            int(min(max(math.trunc(value), low), high))
            if math.isfinite(value)
            else high
            if value > 0
            else low,
        )

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


FUNCTIONS: dict[str, Callable[..., Value]] = {
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
    "f32_to_f16": lambda x: f(x.value, 16),
    "f16_to_f32": lambda x: f(x.value, 32),
    "f32_to_bf16": _bf16,
    "f32_to_u32": _to_integer(0, 2**32 - 1, "u", 32),
    "f32_to_i32": _to_integer(-(2**31), 2**31 - 1, "i", 32),
    "f64_to_u32": _to_integer(0, 2**32 - 1, "u", 32),
    "f64_to_i32": _to_integer(-(2**31), 2**31 - 1, "i", 32),
    "f16_to_u16": _to_integer(0, 2**16 - 1, "u", 16),
    "f16_to_i16": _to_integer(-(2**15), 2**15 - 1, "i", 16),
    "f32_to_f64": lambda x: f(x.value, 64),
    "f64_to_f32": lambda x: f(x.value, 32),
    "u32_to_f32": lambda x: f(int(x.value), 32),
    "i32_to_f32": lambda x: f(int(x.value), 32),
    "u32_to_f64": lambda x: f(int(x.value), 64),
    "i32_to_f64": lambda x: f(int(x.value), 64),
    "u16_to_f16": lambda x: f(int(x.value), 16),
    "i16_to_f16": lambda x: f(int(x.value), 16),
    # The pseudocode does not say so: they saturate.
    "u32_to_u16": lambda x: u(min(int(x.value), 2**16 - 1), 16),
    "i32_to_i16": lambda x: Value("i", 16, min(max(int(x.value), -(2**15)), 2**15 - 1)),
    "signext": lambda x: Value("i", 64, x.as_("i", x.width).value),
    "signext_from_bit": lambda x, n: Value(
        "i",
        x.width,
        u(int(x.value), int(n.value)).as_("i", int(n.value)).value if n.value else 0,
    ),
}


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
    """The statements of pseudocode."""
    text = re.sub(r"//[^\n]*", "", text)
    # This mode is off; what it would ask, kinds of NaN, a conversion to f64 changes.
    text = re.sub(r"\(WAVE_MODE\.IEEE && isSignalNAN\(64'F\(S\d\.f\d+\)\)\)", "0", text)
    text = re.sub(r"\(WAVE_MODE\.IEEE && isSignalNAN\(S\d\.f\d+\)\)", "0", text)
    if "lambda" in text or "VGPR" in text or "MEM[" in text:
        raise NotUnderstoodError("lambdas, other lanes and memory")
    lines = [line.strip() for line in re.split(r";|\n", text) if line.strip()]
    # A statement goes on until its brackets are closed.
    joined: list[str] = []
    for line in lines:
        open_ = joined and joined[-1].count("(") > joined[-1].count(")")
        if open_:
            joined[-1] += " " + line
        else:
            joined.append(line)
    return joined


@dataclass
class Lane:
    """The variables of one lane's run: registers by the names that pseudocode has for them."""

    values: dict[str, Value] = field(default_factory=dict)
    mode: Mapping[str, int] = field(default_factory=dict)

    def run(self, text: str) -> None:
        """Run all statements."""
        lines = _lines(text)
        self._block(lines, 0, len(lines))

    def _block(self, lines: list[str], at: int, end: int) -> None:
        while at < end:
            line = lines[at]
            if line.startswith("if "):
                at = self._if(lines, at, end)
            elif line.startswith("for "):
                at = self._for(lines, at, end)
            elif line.startswith("declare ") or "ROUND_" in line:
                # Rounding is to nearest even anyway.
                at += 1
            elif line == "break":
                raise _Break
            else:
                self._statement(line)
                at += 1

    def _close(self, lines: list[str], at: int, opens: str, closes: str) -> int:
        depth = 0
        for number in range(at, len(lines)):
            depth += lines[number].startswith(opens) - lines[number].startswith(closes)
            if depth == 0:
                return number
        raise NotUnderstoodError("a block without an end")

    def _if(self, lines: list[str], at: int, end: int) -> int:
        last = self._close(lines, at, "if ", "endif")
        marks, depth = [at], 0
        for number in range(at, last):
            depth += lines[number].startswith("if ") - lines[number].startswith("endif")
            if depth == 1 and number > at and lines[number].startswith(("elsif ", "else")):
                marks.append(number)
        marks.append(last)
        for mark, until in pairwise(marks):
            head = lines[mark]
            if head == "else" or self.expression(head.split(" ", 1)[1].removesuffix("then")).true:
                self._block(lines, mark + 1, until)
                break
        return last + 1

    def _for(self, lines: list[str], at: int, end: int) -> int:
        found = re.match(r"for (\w+) in (.+) : (.+) do$", lines[at])
        if not found:
            raise NotUnderstoodError(lines[at])
        last = self._close(lines, at, "for ", "endfor")
        for number in range(
            int(self.expression(found[2]).value), int(self.expression(found[3]).value) + 1
        ):
            self.values[found[1]] = Value("i", 32, number)
            try:
                self._block(lines, at + 1, last)
            except _Break:
                break
        return last + 1

    def _statement(self, line: str) -> None:
        # The last target is assigned first: a = b = c.
        parts = re.split(r"(?<![=!<>+\-|&^])=(?!=)", line)
        compound = re.match(r"(.+?)\s*([-+|&^])=\s*(.+)$", line)
        if compound and len(parts) == 1:
            target = compound[1].strip()
            value = self.expression(f"{target} {compound[2]} ({compound[3]})")
            self._assign(target, value)
            return
        if len(parts) < 2:
            raise NotUnderstoodError(line)
        value = self.expression(parts[-1])
        for target in reversed(parts[:-1]):
            self._assign(target.strip(), value)

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
            # The bits of a constant such as 0xffc00000, or of another type.
            return Value("b", max(width, value.width), value.bits).as_(kind, width)
        return value.to(kind, width)

    # Expressions, by precedence
    def expression(self, text: str) -> Value:
        """Return what an expression is worth."""
        tokens = _tokens(text.strip())
        reader = _Reader(self, tokens)
        value = reader.ternary()
        if reader.at != len(tokens):
            raise NotUnderstoodError(text)
        return value


@cache
def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token or token.end() == at:
            raise NotUnderstoodError(text)
        found.append((str(token.lastgroup), token[str(token.lastgroup)]))
        at = token.end()
    return found


_LEVELS = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!=", "<>"],
    ["<", ">", "<=", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
    ["**"],
]


@dataclass
class _Reader:
    lane: Lane
    tokens: list[tuple[str, str]]
    at: int = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> tuple[str, str]:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if expected and token[1] != expected:
            raise NotUnderstoodError(f"{token[1]} in place of {expected}")
        self.at += 1
        return token

    def ternary(self) -> Value:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        first = self.ternary()
        self.take(":")
        second = self.ternary()
        return first if condition.true else second

    def binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            operator = self.take()[1]
            left = _operate(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Value:
        token = self.peek()
        if token in ("-", "~", "!", "+"):
            self.take()
            value = self.unary()
            if token == "-":
                return Value(value.kind, value.width, -value.value).to(value.kind, value.width)
            if token == "~":
                return Value(value.kind, value.width, ~value.value).as_(value.kind, value.width)
            return u(not value.true, 1) if token == "!" else value
        return self.postfix()

    def postfix(self) -> Value:
        value = self.primary()
        while self.at < len(self.tokens):
            group, text = self.tokens[self.at]
            if group == "type":
                self.take()
                found = re.match(r"\.(bf|[uifb])(\d+)", text)
                assert found
                if found[1] == "bf":
                    raise NotUnderstoodError("bf16")
                width = int(found[2])
                wide = Value("b", max(width, value.width), value.bits)
                value = wide.as_(found[1], width)
            elif text == "[":
                self.take()
                high = int(self.ternary().value)
                low = high
                if self.peek() == ":":
                    self.take()
                    low = int(self.ternary().value)
                self.take("]")
                if high < low:
                    # The bits in the other order.
                    size = low - high + 1
                    text_ = format(value.bits >> high & (1 << size) - 1, f"0{size}b")
                    value = Value("u", size, int(text_[::-1], 2))
                else:
                    size = high - low + 1
                    value = Value("u", size, value.bits >> low & (1 << size) - 1)
            else:
                break
        return value

    def primary(self) -> Value:
        group, text = self.take()
        if text == "(":
            value = self.ternary()
            self.take(")")
            return value
        if text == "{":
            parts = [self.ternary()]
            while self.peek() == ",":
                self.take()
                parts.append(self.ternary())
            self.take("}")
            bits, width = 0, 0
            for part in parts:
                bits, width = bits << part.width | part.bits, width + part.width
            return Value("b", width, bits)
        if group == "number":
            return _number(text)
        if group == "sized":
            size, _, rest = text.partition("'")
            if rest in ("U", "I", "F", "B"):
                self.take("(")
                value = self.ternary()
                self.take(")")
                kind = rest.lower()
                if kind == "f" and value.kind != "f" and value.bits > 0xFFFF:
                    return value.as_("f", int(size))
                return value.as_("b", int(size)) if kind == "b" else value.to(kind, int(size))
            return Value("u", int(size), int(rest.rstrip("UIL") or "0", 0))
        if group == "name":
            return self.name(text)
        raise NotUnderstoodError(text)

    def name(self, text: str) -> Value:
        if self.peek() == "(":
            self.take()
            arguments = [self.ternary()]
            while self.peek() == ",":
                self.take()
                arguments.append(self.ternary())
            self.take(")")
            if text not in FUNCTIONS:
                raise NotUnderstoodError(text)
            return FUNCTIONS[text](*arguments)
        if text in ("INF", "NAN"):
            typed = self.at < len(self.tokens) and self.tokens[self.at][0] == "type"
            width = int(self.take()[1][2:]) if typed else 64
            return f(math.inf if text == "INF" else math.nan, width)
        if text in ("PI", "MAX_FLOAT_F32", "DENORM", "UNDERFLOW_F32", "OVERFLOW_F32"):
            if text == "PI":
                return f(math.pi, 64)
            raise NotUnderstoodError(text)
        if text == "WAVE_MODE.IEEE":
            return u(0, 1)
        if text not in self.lane.values:
            raise NotUnderstoodError(text)
        return self.lane.values[text]


def _number(text: str) -> Value:
    if "." in text:
        return f(float(text.rstrip("F")), 32 if text.endswith("F") else 64)
    digits = text.rstrip("UL") if text.startswith("0x") else text.rstrip("ULF")
    suffix = text[len(digits) :]
    width = 64 if "LL" in suffix else 32
    return Value("u" if "U" in suffix else "i", width, int(digits, 0))


def _operate(operator: str, a: Value, b: Value) -> Value:
    if operator in ("&&", "||"):
        return u(a.true and b.true if operator == "&&" else a.true or b.true, 1)
    if operator in ("<<", ">>"):
        distance = int(b.value)
        if operator == "<<":
            return Value(a.kind, a.width, int(a.value) << distance).as_(a.kind, a.width)
        return Value(a.kind, a.width, int(a.value) >> distance).as_(a.kind, a.width)
    if operator in ("==", "!=", "<>", "<", ">", "<=", ">="):
        x, y = a.value, b.value
        result = {
            "==": x == y,
            "!=": x != y,
            "<>": x < y or x > y,
            "<": x < y,
            ">": x > y,
            "<=": x <= y,
            ">=": x >= y,
        }[operator]
        return u(bool(result), 1)
    if "f" in (a.kind, b.kind):
        width = max(v.width for v in (a, b) if v.kind == "f")
        x, y = (_FLOATS[width](v.value) for v in (a, b))
        result = {"+": x + y, "-": x - y, "*": x * y}.get(operator)
        if operator == "/":
            result = np.divide(x, y)
        if operator == "**":
            result = np.power(np.float64(x), np.float64(y))
        return f(result, width)
    width = max(a.width, b.width)
    kind = "i" if a.kind == "i" and b.kind == "i" else "u"
    x, y = int(a.value), int(b.value)
    exact: Callable[[], int] = {
        "+": lambda: x + y,
        "-": lambda: x - y,
        "*": lambda: x * y,
        "/": lambda: x // y,
        "%": lambda: x % y,
        "&": lambda: x & y,
        "|": lambda: x | y,
        "^": lambda: x ^ y,
        "**": lambda: int(x**y),
    }[operator]
    return Value(kind, width, exact()).as_(kind, width)
