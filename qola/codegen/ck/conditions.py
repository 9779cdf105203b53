"""Parses the conditions of a dispatch, and decides which of them cover another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
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
    """A comparison, and whether it or its opposite must hold."""

    text: str
    holds: bool


class Joined(NamedTuple):
    """Formulas of which all must hold, or one."""

    every: bool
    formulas: tuple[Formula, ...]


Formula = bool | Part | Joined


@cache
def compiled(condition: str) -> CodeType:
    """Compile a condition to Python code: comparisons, arithmetic, members of `a` and `t`.

    Raises:
        NotUnderstoodError: it contains anything else.
    """
    return compile(_parsed(condition), "<dispatch>", "eval")


def conjuncts(condition: str) -> tuple[Formula, ...]:
    """Split a condition into formulas that must all hold; raises as `compiled`."""
    formula = _joined(True, [_formula(part) for part in _split(condition)])
    return formula.formulas if isinstance(formula, Joined) else (formula,)


def _split(condition: str) -> list[str]:
    """Split a condition at its outer &&: other conditions share most of the parts."""
    parts, depth = [""], 0
    for word in re.split(r"(&&|\|\||[()])", without_comments(condition)):
        depth += (word == "(") - (word == ")")
        if word == "||" and not depth:
            return [condition]
        parts = [*parts, ""] if word == "&&" and not depth else [*parts[:-1], parts[-1] + word]
    return [condition] if depth else parts


def _parsed(condition: str) -> ast.Expression:
    text = " ".join(without_comments(condition).split())
    text = _SAME.sub(lambda match: str(match[1] == match[2]), text)
    text = _COMPARED.sub(_compared, text)
    text = re.sub(r"\b\w+::(\w+)", r'"\1"', text)
    text = _WORD.sub(lambda match: _WORDS.get(match[0], " not "), text)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        tree = None
    if tree is None or not all(map(_is_plain, ast.walk(tree))):
        raise NotUnderstoodError(f"the condition `{condition.strip()[:200]}`")
    return tree


def _is_plain(node: ast.AST) -> bool:
    """Whether a part of a condition has the same meaning in C++ and Python."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "begins"
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1
    return isinstance(node, _ALLOWED)


def _compared(match: re.Match[str]) -> str:
    """Translate std::string's `compare` to Python, unless it compares a part of the other text."""
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
        flat += one.formulas if isinstance(one, Joined) and one.every == every else [one]
    if (not every) in flat:
        return not every
    left = tuple(one for one in flat if one is not every)
    return Joined(every, left) if left else every


#: Most comparisons whose truth values are all tried.
_MOST_PARTS = 8
_MULTIPLE = re.compile(r"(a\.\w+ %) ([1-9]\d*) == 0")
_BOUND = re.compile(r"([at]\.\w+ <=) (\d+)")

Conjuncts = tuple[Formula, ...]
Known = dict[str, bool]


@cache  # rows with other traits have the same conditions
def covering(behind: Conjuncts, front: tuple[Conjuncts, ...]) -> tuple[int, ...]:
    """Return indices of preceding conditions that together cover a condition, () if they do not.

    Tries all truth values of the comparisons that `behind` leaves open. One index if one condition
    is sufficient, else those of all that contribute.
    """
    known = {part.text: part.holds for part in behind if isinstance(part, Part)}
    parts: dict[str, None] = {}
    able = []
    for index, one in enumerate(front):
        value = _all(one, known, parts)
        if value:
            return (index,)
        if value is None:
            able.append(index)
    if not able or len(parts) > _MOST_PARTS:
        return ()
    taken: dict[int, None] = {}
    for values in product((False, True), repeat=len(parts)):
        now = known | dict(zip(parts, values, strict=True))
        index = next((i for i in able if _all(front[i], now, {})), -1)
        if index < 0:
            return ()
        taken[index] = None
    return tuple(sorted(taken))


def _all(formulas: Iterable[Formula], known: Known, open_: dict[str, None]) -> bool | None:
    """Return whether all formulas hold, None if that depends on comparisons, which `open_` gets."""
    values = [_value(one, known, open_) for one in formulas]
    return False if False in values else None if None in values else True


def _value(formula: Formula, known: Known, open_: dict[str, None]) -> bool | None:
    if isinstance(formula, bool):
        return formula
    if isinstance(formula, Part):
        value = known.get(formula.text)
        if value is None and _follows(formula.text, known):
            value = True
        if value is None:
            open_[formula.text] = None
            return None
        return value == formula.holds
    if formula.every:
        return _all(formula.formulas, known, open_)
    values = [_value(one, known, open_) for one in formula.formulas]
    return True if True in values else None if None in values else False


def _follows(part: str, known: Mapping[str, bool]) -> bool:
    """Whether a comparison follows from another: a multiple of 64 is a multiple of 8."""
    name, step, bound = _number(part)
    if not name:
        return False
    if step == 1:
        return True
    others = (_number(other) for other, holds in known.items() if holds)
    return any(
        name == same and ((step and number % step == 0) or (not step and limit <= bound))
        for same, number, limit in others
    )


@cache
def _number(part: str) -> tuple[str, int, int]:
    """Parse `x % step == 0` or `x <= limit`: the left side, step and limit, or ("", 0, 0)."""
    if match := _MULTIPLE.fullmatch(part):
        return match[1], int(match[2]), 0
    if match := _BOUND.fullmatch(part):
        return match[1], 0, int(match[2])
    return "", 0, 0
