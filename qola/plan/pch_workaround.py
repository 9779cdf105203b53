"""Works around a fault of clang: explicit specialisations at class scope, in precompiled headers.

Of several specialisations that a class template has for one of its function templates, clang takes
the first for all, once the class comes out of a precompiled header (llvm-project issue 180527,
measured with clang 22.1.8). It says nothing and compiles another kernel. Classes that are no
templates are unharmed. Composable Kernel has one such class, the scheduler of a backward pipeline.
Compiles with precompiled headers read a copy of its header in which the specialisations are
overloads with a constraint, which mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NOISE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""",
    re.DOTALL | re.MULTILINE,
)
_TOKEN = re.compile(r"[{};]|\btemplate\s*<\s*>\s*")
_NAMESPACE = re.compile(r"\bnamespace\b[^(){}=]*$|\bextern\s*$")
_CLASS = re.compile(r"\b(?:struct|class|union)\s+[\w:]+[^()=]*$")
#: What follows `template <>`: a function if a list of parameters comes after the arguments.
_FUNCTION = re.compile(
    r"(?P<before>[^{};()=]*?)\b(?P<name>\w+)\s*<(?P<value>[^<>{};]*)>\s*\(\s*\)\s*\{"
)
_TYPE = re.compile(r"(?:struct|class|union)\b")
_END = re.compile(r"[{;=]")
_PRIMARY = (
    r"template\s*<\s*(?P<type>[\w:]+)\s+(?P<parameter>\w+)\s*>\s*"
    r"(?P<before>[^{{}};()=]*?)\b{name}\s*\(\s*\)\s*\{{"
)


@dataclass(frozen=True)
class Specialisation:
    """An explicit specialisation of a function template, at class scope."""

    start: int
    end: int


def specialisations(text: str) -> list[Specialisation]:
    """Return the explicit specialisations of functions that stand within a class template.

    All but a namespace and, plainly, a class without parameters counts as a class template: one
    too many costs time, one too few a wrong kernel.
    """
    if not re.search(r"\btemplate\s*<\s*>", text):
        return []
    return list(_find(_blanked(text)))


def _blanked(text: str) -> str:
    """Return C++ source without comments, strings and directives, every offset as it was."""
    return _NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _find(text: str) -> Iterator[Specialisation]:
    # Of each open brace: may it stand within a class template?
    scopes: list[bool] = []
    begin = 0
    for match in _TOKEN.finditer(text):
        if match[0].startswith("t"):
            if scopes and scopes[-1] and _is_function(text, match.end()):
                yield Specialisation(match.start(), match.end())
            continue
        if match[0] == "{":
            statement = text[begin : match.start()]
            outer = bool(scopes) and scopes[-1]
            plain = _CLASS.search(statement) and "template" not in statement
            scopes.append(not _NAMESPACE.search(statement) and (outer or not plain))
        elif match[0] == "}" and scopes:
            scopes.pop()
        begin = match.end()


def _is_function(text: str, start: int) -> bool:
    """Whether the declaration that starts there has parameters: neither a type nor a variable."""
    end = _END.search(text, start)
    return not _TYPE.match(text, start) and "(" in text[start : end.start() if end else len(text)]


def with_constraints(text: str) -> str | None:
    """Return a header whose specialisations at class scope are constrained overloads instead.

    Returns:
        The header, with as many lines; None where one of them has a form that is not known:
        a template with one parameter that is not a type, a function without parameters.
    """
    blanked, parts, done = _blanked(text), [], 0
    for found in specialisations(text):
        function = _FUNCTION.match(blanked, found.end)
        if function is None:
            return None
        before = list(
            re.finditer(_PRIMARY.format(name=function["name"]), blanked[: found.start], re.DOTALL)
        )
        if not before:
            return None
        primary = before[-1]
        static = "static " if "static" in primary["before"].split() else ""
        body = function.end() - 1
        lines = blanked[found.start : body].count("\n")
        parts.append(text[done : found.start])
        parts.append(
            f"template <{primary['type']} {primary['parameter']}>\n"
            f"        {static}{' '.join(function['before'].split())} {function['name']}()"
            f" requires({primary['parameter']} == {function['value'].strip()})"
            + "\n" * (lines - 1)
            + "        "
        )
        done = body
    return "".join([*parts, text[done:]])
