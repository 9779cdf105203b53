"""Evaluates the conditions of a C++ source under known macros, without a compiler.

Conditions have three values: a line counts, does not count, or depends on an unknown macro, such
as those of compilers and of headers that are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Macros = Mapping[str, str | None]
"""Values of macros: None for an undefined one, UNKNOWN for one that may be defined or not."""
UNKNOWN = "?"
"""The value of a macro that may be defined or not, with any value."""

_COMMENT = re.compile(
    r"""//(?:[^\n]*\\\n)*[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
#: Queries that the compiler answers, such as __has_include(<hip/hip_runtime.h>).
_ANSWERED = r"__has_\w+\s*\([^()]*\)"
_TOKEN = re.compile(
    rf"\s*({_ANSWERED}|[A-Za-z_]\w*|\d[\w']*|\|\||&&|[=!<>]=|<<|>>|[-!()<>+*/%&|^~?:,])"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("+", "-"),
    ("*",),
)
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
            stack.append((outer, _or(taken, found), _and(_not(taken), found)))
        elif word == "endif" and stack:
            counts = stack.pop()[0]
            yield Line(number, line, counts)
            continue
        if word in (*_IF, "elif", "else") and stack:
            yield Line(number, line, stack[-1][0])
            counts = _and(stack[-1][0], stack[-1][2])
            continue
        if word in ("define", "undef") and counts is not False:
            _follow(word, rest, known, certain=counts is True)
        yield Line(number, line, counts)


def code_lines(text: str, macros: Macros, *, doubt: bool | None = None) -> Iterator[Line]:
    """Yield the lines without directives that a compiler reads if only these macros are defined.

    Args:
        doubt: as for `lines`.
    """
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
        asked = re.sub(r"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)", " ", match[2])
        # Calls do not count, and names with two underscores are the compiler's.
        asked = re.sub(_ANSWERED, " ", asked)
        for name in re.findall(r"\b(?!__|\d)[A-Za-z_]\w*\b(?!\s*\()", asked):
            if name not in ("true", "false"):
                found.setdefault(name, number)
    return [Condition(name, line) for name, line in found.items() if name not in own]


def value(expression: str, macros: Macros, *, complete: bool = False) -> int | None:
    """Return the value of a condition, None if it is unknown or of an unsupported form.

    Supported: numbers, macros, ``defined``, ``! && || == != < > <= >= + - *`` and brackets.
    """
    return _Expression(expression, macros, complete, 0).whole()


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


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: bool | None, right: bool | None) -> bool | None:
    return _not(_and(_not(left), _not(right)))


class _UnsupportedError(Exception):
    """An expression of an unsupported form."""


class _Expression:
    def __init__(self, text: str, macros: Macros, complete: bool, depth: int) -> None:
        self._macros, self._complete, self._depth = macros, complete, depth
        self._tokens = _TOKEN.findall(text)
        self._whole = not _TOKEN.sub("", text).strip()

    def whole(self) -> int | None:
        try:
            found = self._level(0)
        except (_UnsupportedError, IndexError):
            return None
        return found if self._whole and not self._tokens else None

    def _level(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self._tokens and self._tokens[0] in _LEVELS[level]:
            operator = self._tokens.pop(0)
            left = _apply(operator, left, self._level(level + 1))
        return left

    def _unary(self) -> int | None:
        token = self._tokens.pop(0)
        if token in ("!", "-", "+"):
            found = self._unary()
            if found is None:
                return None
            return {"!": int(not found), "-": -found, "+": found}[token]
        if token == "(":
            found = self._level(0)
            if self._tokens.pop(0) != ")":
                raise _UnsupportedError
            return found
        if token[0].isdigit():
            return _number(token)
        if not re.match(r"[A-Za-z_]", token):
            raise _UnsupportedError
        if token.endswith(")"):
            return None
        return self._defined() if token == "defined" else self._name(token)

    def _defined(self) -> int | None:
        bracket = self._tokens[0] == "("
        name = self._tokens.pop(1 if bracket else 0)
        if bracket and (self._tokens.pop(0), self._tokens.pop(0)) != ("(", ")"):
            raise _UnsupportedError
        found = _is_defined(name, self._macros, self._complete)
        return None if found is None else int(found)

    def _name(self, name: str) -> int | None:
        if self._tokens[:1] == ["("]:
            raise _UnsupportedError
        if name in ("true", "false"):
            return int(name == "true")
        if name not in self._macros:
            return 0 if self._complete else None
        text = self._macros[name]
        if text is None or text == UNKNOWN:
            return 0 if text is None else None
        if self._depth > 8:
            raise _UnsupportedError
        return _Expression(text, self._macros, self._complete, self._depth + 1).whole()


def _number(token: str) -> int:
    digits = re.sub(r"[uUlLzZ]+$", "", token.replace("'", ""))
    try:
        octal = re.fullmatch(r"0\d+", digits)
        return int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        raise _UnsupportedError from None


def _apply(operator: str, left: int | None, right: int | None) -> int | None:
    if operator in ("&&", "||"):
        join = _and if operator == "&&" else _or
        found = join(_truth(left), _truth(right))
        return None if found is None else int(found)
    if left is None or right is None:
        return None
    return int(
        {
            "==": left == right,
            "!=": left != right,
            "<": left < right,
            ">": left > right,
            "<=": left <= right,
            ">=": left >= right,
            "+": left + right,
            "-": left - right,
            "*": left * right,
        }[operator]
    )
