"""Conditions of a dispatch: their C++ as Python, and what they are made of."""

from __future__ import annotations

import ast
import re
from functools import cache
from types import CodeType
from typing import NamedTuple

from qola.codegen.ck.link import NotUnderstoodError, without_comments

_SAME = re.compile(r"std::is_same_v<\s*(\w+)\s*,\s*(\w+)\s*>")
_COMPARED = re.compile(r'([\w.]+)\.compare\(\s*(?:0\s*,\s*(\d+)\s*,\s*)?"([^"]*)"\s*\)\s*==\s*0')
_WORDS = {"true": "True", "false": "False", "nullptr": "None", "&&": " and ", "||": " or "}
_WORD = re.compile(r"\b(?:true|false|nullptr)\b|&&|\|\||!(?!=)")
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BinOp, ast.Mod, ast.Add, ast.Sub),
    *(ast.Mult, ast.Name, ast.Attribute, ast.Constant, ast.Load, ast.Call),
)


class Part(NamedTuple):
    """A comparison, and whether it has to hold or its opposite."""

    text: str
    holds: bool


class Joined(NamedTuple):
    """Formulas of which every one has to hold, or any."""

    every: bool
    of: tuple[Formula, ...]


Formula = bool | Part | Joined


@cache
def compiled(condition: str) -> CodeType:
    """Return a condition as Python's code: comparisons, arithmetic, members of `a` and `t`.

    Raises:
        NotUnderstoodError: it has something else.
    """
    return compile(_parsed(condition), "<dispatch>", "eval")


def conjuncts(condition: str) -> tuple[Formula, ...]:
    """Return formulas that all have to hold for a condition to hold.

    Raises:
        NotUnderstoodError: it has something else than `compiled` takes.
    """
    found: list[Formula] = []
    for text in _split(condition):
        formula = _formula(text)
        found += formula.of if isinstance(formula, Joined) and formula.every else [formula]
    return tuple(found)


def _split(condition: str) -> list[str]:
    """Split a condition where && joins it as a whole: most of its parts are those of others."""
    either, every = _outside(condition, "||"), _outside(condition, "&&")
    return [condition] if len(either) > 1 else every


def _outside(condition: str, word: str) -> list[str]:
    """Split a condition at a word where that is in no parentheses."""
    found = [""]
    depth = 0
    for text in condition.split(word):
        found[-1] += text
        depth += text.count("(") - text.count(")")
        if depth:
            found[-1] += word
        else:
            found.append("")
    return [condition] if depth else found[:-1]


def _parsed(condition: str) -> ast.Expression:
    text = " ".join(without_comments(condition).split())
    text = _SAME.sub(lambda match: str(match[1] == match[2]), text)
    text = _COMPARED.sub(_compared, text)
    text = re.sub(r"\b\w+::(\w+)", r'"\1"', text)
    text = _WORD.sub(lambda match: _WORDS.get(match[0], " not "), text)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise NotUnderstoodError(f"the condition `{condition.strip()[:200]}`") from None
    if not all(map(_is_plain, ast.walk(tree))):
        raise NotUnderstoodError(f"the condition `{condition.strip()[:200]}`")
    return tree


def _is_plain(node: ast.AST) -> bool:
    """Whether a part of a condition means the same in both languages."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "begins"
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1
    return isinstance(node, _ALLOWED)


def _compared(match: re.Match[str]) -> str:
    """Return std::string's `compare` as Python; of another part than the whole text, as it was."""
    of, length, other = match.groups()
    if length is None:
        return f'{of} == "{other}"'
    return f'begins({of}, "{other}")' if int(length) == len(other) else match[0]


@cache
def _formula(condition: str) -> Formula:
    return _of(_parsed(condition).body, True)


def _of(node: ast.expr, holds: bool) -> Formula:
    """Return a condition, or its opposite, with every `not` at a comparison."""
    if isinstance(node, ast.Constant):
        return bool(node.value) == holds
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _of(node.operand, not holds)
    if isinstance(node, ast.BoolOp):
        every = isinstance(node.op, ast.And) == holds
        return _joined(every, [_of(one, holds) for one in node.values])
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq):
        node, holds = ast.Compare(node.left, [ast.Eq()], node.comparators), not holds
    return Part(ast.unparse(node), holds)


def _joined(every: bool, formulas: list[Formula]) -> Formula:
    flat: list[Formula] = []
    for one in formulas:
        flat += one.of if isinstance(one, Joined) and one.every == every else [one]
    if (not every) in flat:
        return not every
    left = tuple(one for one in flat if one is not every)
    return Joined(every, left) if left else every
