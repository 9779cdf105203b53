"""Reads the functions and types that a C++ text declares in a namespace, without a compiler.

AITER's headers declare plain functions. Other forms (templates, operators, function pointers) are
ignored, or have `parameters` of None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: A macro without semicolon may precede it.
_NAMESPACE = re.compile(r"(?:^|\s)namespace\s+([\w:]+)\s*$")
_TYPE = re.compile(
    r"\s*(?:template\s*<.*>\s*)?(?:struct|class|union|enum(?:\s+(?:class|struct))?)\s+(\w+)",
    re.DOTALL,
)
#: Its enumerators are names of the namespace.
_OPEN_ENUM = re.compile(r"\s*enum\b(?!\s+(?:class|struct)\b)")
_ALIAS = re.compile(
    r"\s*(?:template\s*<.*>\s*)?using\s+(\w+)\s*=|\s*typedef\b.*?(\w+)\s*$", re.DOTALL
)
_CONSTANT = re.compile(
    r"(?=[^=({]*\b(?:const|constexpr|constinit)\b)[^=({]*?(\w+)\s*(?:\[\w*\]\s*)?(?:=.*)?$",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|\b(?:__attribute__|alignas)\s*\(", re.DOTALL)
#: A string or a character; within a number, ' separates digits.
_QUOTED = re.compile(r""""(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""")
_TOKEN = re.compile(rf"[{{}};]|{_QUOTED.pattern}")
#: The last word of a parameter without a name.
_BUILT_IN = re.compile(
    r"void|bool|char|short|int|long|float|double|unsigned|signed|const|volatile|size_t"
)
#: The word after one of these is a type, not a name.
_NO_TYPE = ("const", "volatile", "struct", "enum", "class", "union", "typename")
_OPERATORS = ("<<", "<=", "->")
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; name and default are "" if the declaration has none."""

    type: str
    name: str
    default: str


@dataclass(frozen=True)
class Function:
    """A function with external linkage; its result has no attributes.

    Attributes:
        parameters: None if the form of one of them, or of the result, is not supported.
        defined: the text contains its body.
    """

    name: str
    result: str
    parameters: tuple[Parameter, ...] | None
    defined: bool


@dataclass(frozen=True)
class Scope:
    """The direct content of a namespace, without its inner namespaces.

    Attributes:
        names: types, and constants and enumerators, which defaults may use.
    """

    functions: tuple[Function, ...]
    names: frozenset[str]


def read_scope(text: str, namespace: str) -> Scope:
    """Read functions, types and constants of a namespace; of a declaration, the first constant.

    Args:
        text: C++ without comments and preprocessor lines; see `qola.aiter.preprocess.lines`.
        namespace: its name, "" for the global one.
    """
    functions, names = [], set()
    for statement, body in _statements(text, namespace):
        plain = _without_attributes(statement)
        if body is not None and _OPEN_ENUM.match(plain):
            names.update(re.findall(r"(?:^|,)\s*(\w+)", body))
        if found := _TYPE.match(plain):
            names.add(found[1])
        elif found := _ALIAS.match(plain):
            names.add(found[1] or found[2])
        elif (function := _function(plain, defined=body is not None)) is not None:
            functions.append(function)
        elif found := _CONSTANT.match(plain):
            names.add(found[1])
    return Scope(tuple(functions), frozenset(names))


def has_variable(text: str, namespace: str, name: str) -> bool:
    """Return whether a text, prepared as for `read_scope`, declares a variable in a namespace."""
    declared = re.compile(rf"[\s&*>]{name}\s*(?:=|$)")
    return any(
        declared.search(_without_attributes(statement.rstrip()))
        and "(" not in statement.partition(name)[0]
        for statement, _ in _statements(text, namespace)
    )


def qualified(text: str, names: frozenset[str], scope: str) -> str:
    """Return a type or an expression with `scope` before each of its words that is in `names`.

    Members (`a.x`), qualified names (`b::x`) and strings stay unchanged.
    """
    return re.sub(
        rf"{_QUOTED.pattern}|(?<![\w:.])(?<!->)[A-Za-z_]\w*",
        lambda m: scope + m[0] if m[0] in names else m[0],
        text,
    )


def _statements(text: str, namespace: str) -> Iterator[tuple[str, str | None]]:
    """Yield the direct statements of the namespace, with the body up to its first brace, if any."""
    # For each open brace: its namespace, or None.
    open_: list[str | None] = []
    begin, within = 0, 0
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark not in "{};":
            continue
        inside = None not in open_ and "::".join(s for s in open_ if s) == namespace
        statement = text[begin : match.start()]
        if mark in "{}" and (within or statement.count("(") > statement.count(")")):
            # The braces of a default, such as `p = {}`.
            within += 1 if mark == "{" else -1
            continue
        if mark == "{":
            space = _NAMESPACE.search(statement)
            if None not in open_ and space:
                open_.append(space[1])
            elif None not in open_ and re.search(r"\bextern\s*$|extern\s*\"C[+]*\"\s*$", statement):
                open_.append("")
            else:
                if inside and statement.strip():
                    yield statement, re.split("[{}]", text[match.end() :], maxsplit=1)[0]
                open_.append(None)
        elif mark == "}":
            if open_:
                open_.pop()
        elif inside and statement.strip():
            yield statement, None
        begin = match.end()


def _without_attributes(text: str) -> str:
    while match := _ATTRIBUTE.search(text):
        end = match.end()
        if match[0].endswith("("):
            end = _closing(text, match.end() - 1) + 1
        text = f"{text[: match.start()]} {text[end:]}"
    return text


def _function(statement: str, *, defined: bool) -> Function | None:
    """Return the function with external linkage that a statement declares, if any."""
    head, bracket, _ = statement.partition("(")
    match = re.fullmatch(r"\s*(.*?[\s&*>])(\w+)\s*", head, re.DOTALL)
    words = head.split()
    if not bracket or match is None or "=" in head:
        return None
    if {"static", "inline", "template", "operator", "typedef", "using", "return"} & {*words}:
        return None
    end = _closing(statement, len(head))
    result = " ".join(w for w in match[1].split() if w not in ("extern", "constexpr"))
    if result == "auto" and (trailing := re.search(r"->(.*)", statement[end:], re.DOTALL)):
        result = " ".join(trailing[1].split())
    if not result or "= delete" in statement[end:]:
        return None
    # A result deduced from the body cannot be declared elsewhere.
    is_read = "auto" not in result.split()
    parameters = _parameters(statement[len(head) + 1 : end]) if is_read else None
    return Function(match[2], result, parameters, defined)


def _parameters(text: str) -> tuple[Parameter, ...] | None:
    parts = [] if text.strip() in ("", "void") else _split(text, ",")
    found = [_parameter(" ".join(part.split())) for part in parts]
    return tuple(p for p in found if p) if all(found) else None


def _parameter(text: str) -> Parameter | None:
    written, *default = _split(text, "=", 1)
    written = written.strip()
    if not written or re.search(r"[(\[]|\.\.\.", re.sub(r"<.*>", "", written)):
        return None
    named = re.fullmatch(r"(.*[\s&*>])(\w+)", written)
    if named and not _BUILT_IN.fullmatch(named[2]) and named[1].split()[-1] not in _NO_TYPE:
        return Parameter(named[1].strip(), named[2], "".join(default).strip())
    return Parameter(written, "", "".join(default).strip())


def _split(text: str, mark: str, times: int = -1) -> list[str]:
    """Split at a mark outside of brackets and strings."""
    parts: list[str] = []
    closers: list[str] = []
    begin = 0
    quoted = [range(*match.span()) for match in _QUOTED.finditer(text)]
    for place, char in enumerate(text):
        if any(place in literal for literal in quoted):
            continue
        if text[place : place + 2] in _OPERATORS or text[place - 1 : place + 1] in _OPERATORS:
            continue
        if char in _BRACKETS:
            closers.append(_BRACKETS[char])
        elif closers and char == closers[-1]:
            closers.pop()
        elif char == mark and not closers and len(parts) != times:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def _closing(text: str, place: int) -> int:
    """Return the position of the matching bracket, or the end of the text."""
    depth = 0
    for match in re.compile(rf"[()]|{_QUOTED.pattern}").finditer(text, place):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return len(text)
