"""The part of jinja2 that templates of csrc/cpp_itfs use, for a process without packages.

Placeholders with expressions, and `if`, `elif`, `else` and `endif`. Other syntax, and names without
a value, are errors. tests/codegen/test_cpp_itfs.py compares the results with jinja2's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from qola.aiter.expressions import COMPARE

_MARK = re.compile(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "none": None}


Values: TypeAlias = Mapping[str, Any]
"""The values of names, which AITER's Python gives."""


class TemplateError(Exception):
    """Syntax that is not supported here, or a name without a value."""


class Template:
    """A template, with the methods of jinja2's class that AITER calls."""

    def __init__(self, source: str) -> None:
        # As jinja2 by default.
        self._source = re.sub(r"\r\n?", "\n", source).removesuffix("\n")

    def render(self, **values: Any) -> str:
        """Return the text with the values of its expressions.

        Raises:
            TemplateError: the template uses more of jinja2 than this class supports.
        """
        return "".join(self._parts(values))

    def _parts(self, values: Values) -> Iterator[str]:
        # Of each open `if`: whether the branch counts, and whether an earlier one did.
        branches: list[tuple[bool, bool]] = []

        def counts(outer: int | None = None) -> bool:
            return all(own for own, _ in branches[:outer])

        for part in _MARK.split(self._source):
            if part.startswith("{{"):
                if counts():
                    yield str(evaluate(part[2:-2], values))
            elif part.startswith("{%"):
                word, _, condition = part[2:-2].strip().partition(" ")
                if word == "if":
                    holds = counts() and bool(evaluate(condition, values))
                    branches.append((holds, holds))
                elif word in ("elif", "else", "endif") and branches:
                    _, taken = branches.pop()
                    if word == "endif":
                        continue
                    holds = counts() and not taken
                    holds = holds and (word == "else" or bool(evaluate(condition, values)))
                    branches.append((holds, taken or holds))
                else:
                    raise TemplateError(f"{part}: only if, elif, else and endif are supported")
            elif not part.startswith("{#") and counts():
                yield part
        if branches:
            raise TemplateError("an if without endif")


def evaluate(text: str, values: Values) -> Any:
    """Return the value of an expression."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, values)
    except SyntaxError:
        raise TemplateError(f"{text.strip()}: an expression that is not supported") from None


def _value(node: ast.expr, values: Values) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name in values or name in _CONSTANTS:
                return values.get(name, _CONSTANTS.get(name))
            raise TemplateError(f"{name} has no value")
        case ast.IfExp(test=test, body=body, orelse=other):
            return _value(body if _value(test, values) else other, values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.BoolOp(op=joint, values=operands):
            found: Any = None
            for operand in operands:
                found = _value(operand, values)
                if bool(found) == isinstance(joint, ast.Or):
                    break
            return found
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARE:
            return COMPARE[type(sign)](_value(left, values), _value(right, values))
        case _:
            raise TemplateError(f"{ast.unparse(node)}: an expression that is not supported")
