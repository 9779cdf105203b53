"""Reads the branches of a dispatch from its C++, and finds the rows that no problem reaches.

A dispatch tests conditions within each other: the arch, the data type, the head dimensions, and
then one row after another with `else if`. A row behind conditions that take all of its problems is
unreachable. A row counts as reachable unless this is certain.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from types import CodeType
from typing import NamedTuple

from qola.codegen.ck.link import NotUnderstoodError, call_of, compiled_part, without_comments
from qola.codegen.ck.rows import Row

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


_START = re.compile(r"\bif\s*\(\s*(?:device_name|t\.data_type|t\.hdim_q)\b")
#: Begins with letters, which are found sooner than a border of words.
_IF = re.compile(r"if(?<!\wif)\s*(?:constexpr\s*)?\(")
_ELSE = re.compile(r"\belse\s*$")


@dataclass
class Block:
    """A block in braces: its own text, and chains of if and else with inner blocks."""

    text: str = ""
    chains: list[list[tuple[str, Block]]] = field(default_factory=list)


def read_branches(text: str) -> Block:
    """Return the branches of a dispatch.

    Raises:
        NotUnderstoodError: it tests neither a device nor a data type, or has an unknown form.
    """
    text = compiled_part(text)
    start = _START.search(text)
    if start is None:
        raise NotUnderstoodError("a dispatch that tests neither a device nor a data type")
    return _block(text, start.start())[0]


def _block(text: str, start: int) -> tuple[Block, int]:
    """Parse the block at a position; also return the position of its closing brace."""
    found = Block()
    own, place = [], start
    while True:
        opens, end = text.find("{", place), text.find("}", place)
        end = len(text) if end < 0 else end
        if opens < 0 or end < opens:
            own.append(text[place:end])
            if match := _IF.search(own[-1]):
                raise NotUnderstoodError(f"{own[-1][match.start() :][:200]} without braces")
            found.text = "".join(own)
            return found, end
        head = text[place:opens]
        inner, place = _block(text, opens + 1)
        place += 1
        before, other, condition = _split_head(head)
        if condition is None:  # an initializer or a lambda
            own.append(f"{before}{{{inner.text}}}")
            continue
        own.append(before)
        if not other:
            found.chains.append([(condition, inner)])
        elif found.chains:
            found.chains[-1].append((condition, inner))
        else:
            raise NotUnderstoodError("an else without its if")


def _split_head(head: str) -> tuple[str, bool, str | None]:
    """Split the text before a brace: text, whether it ends with else, and the condition."""
    condition = None
    if match := _IF.search(head):
        condition = head[match.end() :].rstrip()
        if not condition.endswith(")") or ";" in condition:
            raise NotUnderstoodError(f"if({condition.strip()[:200]} without braces")
        condition, head = condition[:-1], head[: match.start()]
    if match := _ELSE.search(head):
        return head[: match.start()], True, condition or "true"
    return head, False, condition


class Leaf(NamedTuple):
    """A row in the text of a dispatch.

    Attributes:
        conditions: the nested conditions, the outermost first.
        text: the text in its braces, after the texts of the outer blocks.
        front: the preceding rows that make it unreachable, by branch; () if it is reachable.
    """

    conditions: tuple[str, ...]
    text: str
    front: tuple[range, ...]


def leaves_of(block: Block) -> list[Leaf]:
    """Return the rows of a dispatch in order."""
    found: list[Leaf] = []

    def read(block: Block, before: str, above: tuple[str, ...], front: tuple[range, ...]) -> None:
        text = before + block.text.strip()
        if not block.chains and "traits_<" in text:
            found.append(Leaf(above, text, front))
        for chain in block.chains:
            # Of branches that test the same traits: their other tests, and their rows.
            groups: dict[Conjuncts, list[tuple[Conjuncts, range]]] = {}
            for condition, inner in chain:
                start = len(found)
                traits, own = _read_condition(condition)
                group = groups.setdefault(traits, [])
                by = () if own is None else covering(own, tuple(tests for tests, _ in group))
                taken = tuple(group[index][1] for index in by)
                read(inner, text, (*above, condition), front or taken)
                rows = range(start, len(found))
                if rows and own is not None and not taken:
                    group.append((own, rows))

    read(block, "", (), ())
    return found


def _read_condition(condition: str) -> tuple[Conjuncts, Conjuncts | None]:
    """Split a condition into tests of traits and other tests; None if it cannot be parsed."""
    try:
        formulas = conjuncts(condition)
    except NotUnderstoodError:
        return (), None
    traits: list[Formula] = []
    others: list[Formula] = []
    for one in formulas:
        if one is not True:
            (traits if _is_trait(one) else others).append(one)
    return tuple(traits), tuple(others)


@cache
def _is_trait(formula: Formula) -> bool:
    return isinstance(formula, Part) and formula.text.startswith("t.") and " == " in formula.text


def unreachable(
    rows: Sequence[Row], render: Callable[[Sequence[Row]], str]
) -> dict[str, tuple[Row, ...]]:
    """Return, by the key of each unreachable row, the preceding rows that take its problems.

    Of a bucket for more head dimensions, only the first. {} if the dispatch has other rows than
    `rows`, or if removing the unreachable rows changes the conditions of the others.

    Args:
        render: renders the dispatch of some rows.
    """
    try:
        leaves = leaves_of(read_branches(render(rows)))
        of_call = {row.call: row for row in reversed(rows)}
        calls = [call_of(leaf.text) for leaf in leaves]
        if Counter(calls) != Counter(row.call for row in rows):
            return {}
        reached = {call for call, leaf in zip(calls, leaves, strict=True) if not leaf.front}
        found = {
            call: tuple(of_call[calls[branch.start]] for branch in leaf.front)
            for call, leaf in zip(calls, leaves, strict=True)
            if call not in reached
        }
        if not found:
            return {}
        left = leaves_of(read_branches(render([row for row in rows if row.call not in found])))
    except NotUnderstoodError:
        return {}
    before = [leaf for call, leaf in zip(calls, leaves, strict=True) if call not in found]
    same = [leaf.conditions for leaf in left] == [leaf.conditions for leaf in before]
    return {row.key: found[row.call] for row in rows if row.call in found} if same else {}
