"""Evaluates the conditions of a C++ source under known macros, without a compiler.

Conditions have three values: a line counts, does not count, or depends on an unknown macro, such
as those of compilers and of headers that are not read.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from qola.aiter.expressions import parse

Macros = Mapping[str, str | None]
"""Values of macros: None for an undefined one, UNKNOWN for one that may be defined or not."""
UNKNOWN = "?"
"""The value of a macro that may be defined or not, with any value."""

_COMMENT = re.compile(
    r"""//(?:[^\n]*\\\n)*[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
#: Queries that the compiler answers, such as __has_include(<hip/hip_runtime.h>).
_ANSWERED = re.compile(r"\b__has_\w+\s*\([^()]*\)")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_NUMBER = re.compile(r"\b\d[\w']*")
_WORDS = {"&&": " and ", "||": " or ", "!": "~"}
_MOST_MACROS = 9  # whose values name each other
_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_UNARY: dict[type[ast.AST], Callable[[int], int]] = {
    ast.Invert: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_IF = ("if", "ifdef", "ifndef")


@dataclass(frozen=True)
class Line:
    """A line of a source, joined with its continuation lines, without comments.

    Attributes:
        number: line number of the first of them, from 1.
        counts: None if it depends on unknown macros.
    """

    number: int
    text: str
    counts: bool | None


@dataclass(frozen=True)
class Condition:
    """A macro whose value an ``#if`` or ``#elif`` uses."""

    name: str
    line: int


def defined_by(flags: Iterable[str]) -> dict[str, str | None]:
    """Return the macros that compiler flags define (-DNAME, -DNAME=VALUE) or undefine (-UNAME)."""
    macros: dict[str, str | None] = {}
    for flag in flags:
        name, equals, value = flag[2:].strip().partition("=")
        if flag.startswith("-D"):
            macros[name] = value if equals else "1"
        elif flag.startswith("-U"):
            macros[name] = None
    return macros


def without_comments(text: str) -> str:
    """Return C++ source with a blank for each comment, and the same lines."""
    return _COMMENT.sub(lambda m: m[0] if m[0][0] in "\"'" else " " + "\n" * m[0].count("\n"), text)


def lines(
    text: str, macros: Macros, *, complete: bool = False, doubt: bool | None = None
) -> Iterator[Line]:
    """Yield the lines of a source, including directives.

    Args:
        macros: known macros; definitions in the source are followed.
        complete: all other macros are undefined, as for a compiler.
        doubt: the value of an unknown condition; None leaves it open.
    """
    known = dict(macros)
    guards: set[int] = set() if complete else _guards(text)
    # For each open #if: whether the lines around it count, a branch was taken, this one counts.
    stack: list[tuple[bool | None, bool | None, bool | None]] = []
    counts: bool | None = True
    for number, line in _joined(text):
        match = _DIRECTIVE.match(line)
        word, rest = (match[1], match[2]) if match else ("", "")
        if word in _IF:
            found = _asked(word, rest, known, complete)
            if found is None and word == "ifndef" and number in guards:
                found = True
            found = doubt if found is None else found
            stack.append((counts, found, found))
        elif word in ("elif", "else") and stack:
            outer, taken, _ = stack.pop()
            found = True if word == "else" else _truth(value(rest, known, complete=complete))
            found = doubt if found is None else found
            stack.append((outer, _either((taken, found)), _every((_not(taken), found))))
        elif word == "endif" and stack:
            counts = stack.pop()[0]
            yield Line(number, line, counts)
            continue
        if word in (*_IF, "elif", "else") and stack:
            yield Line(number, line, stack[-1][0])
            counts = _every((stack[-1][0], stack[-1][2]))
            continue
        if word in ("define", "undef") and counts is not False:
            _follow(word, rest, known, certain=counts is True)
        yield Line(number, line, counts)


def code_lines(text: str, macros: Macros, *, doubt: bool | None = None) -> Iterator[Line]:
    """Yield the lines without directives that a compiler reads if only these macros are defined."""
    for line in lines(text, {"__cplusplus": "202002L", **macros}, complete=True, doubt=doubt):
        if line.counts and not line.text.lstrip().startswith("#"):
            yield line


def code(text: str, macros: Macros, *, doubt: bool | None = None) -> str:
    """Return the text of `code_lines`."""
    return "\n".join(line.text for line in code_lines(text, macros, doubt=doubt))


def conditions(text: str) -> list[Condition]:
    """Return the macros whose values the conditions of a source use.

    Names that occur only in ``defined`` do not count, nor those that the source itself defines
    unconditionally.
    """
    found: dict[str, int] = {}
    own: set[str] = set()
    depth = 0
    for number, line in _joined(text):
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        depth += {"endif": -1}.get(match[1], int(match[1] in _IF))
        if match[1] == "define" and depth == 0:
            own.update(re.findall(r"^\w+", match[2]))
        if match[1] not in ("if", "elif"):
            continue
        # Calls do not count, and names with two underscores are the compiler's.
        asked = _ANSWERED.sub(" ", _DEFINED.sub(" ", match[2]))
        for name in re.findall(r"\b(?!__|\d)[A-Za-z_]\w*\b(?!\s*\()", asked):
            if name not in ("true", "false"):
                found.setdefault(name, number)
    return [Condition(name, line) for name, line in found.items() if name not in own]


def value(expression: str, macros: Macros, *, complete: bool = False) -> int | None:
    """Return the value of a condition, None if it is unknown or of an unsupported form.

    Supported: numbers, macros, ``defined``, ``! && || == != < > <= >= + - *`` and brackets; of a
    comparison's result, no further comparison.
    """
    return _evaluate(expression, macros, complete, _MOST_MACROS)


def _evaluate(text: str, macros: Macros, complete: bool, depth: int) -> int | None:
    """Evaluate a condition as Python, whose operators have the same precedence; ~ stands for !."""

    def defined(match: re.Match[str]) -> str:
        found = _is_defined(match[1] or match[2], macros, complete)
        return f" {found if found is None else int(found)} "

    def value_of(node: ast.AST) -> int | None:
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, int)):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in ("true", "false"):
                return int(node.id == "true")
            written = macros.get(node.id, None if complete else UNKNOWN)
            if written is None or written == UNKNOWN:
                return 0 if written is None else None
            return _evaluate(written, macros, complete, depth - 1)
        if isinstance(node, ast.BoolOp):
            values = [_truth(value_of(value)) for value in node.values]
            found = _every(values) if isinstance(node.op, ast.And) else _either(values)
            return None if found is None else int(found)
        if isinstance(node, ast.UnaryOp):
            operand = value_of(node.operand)
            return None if operand is None else int(_UNARY[type(node.op)](operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            node = ast.BinOp(node.left, node.ops[0], node.comparators[0])  # type: ignore[arg-type]
        if isinstance(node, ast.BinOp):
            apply = _OPERATORS[type(node.op)]
            left, right = value_of(node.left), value_of(node.right)
            return None if left is None or right is None else int(apply(left, right))
        raise SyntaxError(f"{type(node).__name__} in a condition")

    if "~" in text or not depth:
        return None
    text = _NUMBER.sub(_number, _ANSWERED.sub(" None ", _DEFINED.sub(defined, text)))
    text = re.sub(r"&&|\|\||!(?!=)", lambda match: _WORDS[match[0]], text)
    try:
        return value_of(parse(text.strip(), "eval").body)
    except (SyntaxError, ValueError, KeyError, RecursionError):
        return None


def _number(match: re.Match[str]) -> str:
    digits = re.sub(r"[uUlLzZ]+$", "", match[0].replace("'", ""))
    return f"0o{digits}" if re.fullmatch(r"0\d+", digits) else digits


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines joined with their continuation lines, and the number of the first."""
    begun, parts = 0, []
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        begun = begun or number
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        yield begun, "".join([*parts, line])
        begun, parts = 0, []
    if parts:
        yield begun, "".join(parts)


def _guards(text: str) -> set[int]:
    """Return the lines of include guards: an #ifndef of the macro that the next line defines."""
    found = set()
    before, asked = 0, ""
    for number, line in _joined(text):
        if not line.strip():
            continue
        match = _DIRECTIVE.match(line)
        name = match[2].split()[:1] if match else []
        if match and match[1] == "define" and asked and name == [asked]:
            found.add(before)
        before, asked = number, name[0] if match and match[1] == "ifndef" and name else ""
    return found


def _asked(word: str, rest: str, macros: Macros, complete: bool) -> bool | None:
    if word == "if":
        return _truth(value(rest, macros, complete=complete))
    name = re.match(r"\w*", rest)
    found = _is_defined(name[0] if name else "", macros, complete)
    return found if word == "ifdef" else _not(found)


def _is_defined(name: str, macros: Macros, complete: bool) -> bool | None:
    if name in macros:
        return None if macros[name] == UNKNOWN else macros[name] is not None
    return name.startswith("__has_") if complete else None


def _follow(word: str, rest: str, macros: dict[str, str | None], *, certain: bool) -> None:
    match = re.match(r"(\w+)(\()?\s*(.*)", rest, re.DOTALL)
    if match is None:
        return
    if not certain or match[2]:
        if macros.get(match[1]) != UNKNOWN:
            macros.pop(match[1], None)
    else:
        macros[match[1]] = match[3].strip() if word == "define" else None


def _truth(number: int | None) -> bool | None:
    return None if number is None else bool(number)


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _every(values: Iterable[bool | None]) -> bool | None:
    found = list(values)
    return False if False in found else None if None in found else True


def _either(values: Iterable[bool | None]) -> bool | None:
    return _not(_every(map(_not, values)))
