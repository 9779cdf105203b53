"""Reads the branches of a dispatch from its C++, and finds the rows that no problem reaches.

A dispatch tests conditions within each other: the arch, the data type, the head dimensions, and
then one row after another with `else if`. A row behind conditions that take all of its problems is
unreachable. A row counts as reachable unless this is certain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from qola.codegen.ck.conditions import Conjuncts, Formula, Part, conjuncts, covering
from qola.codegen.ck.link import NotUnderstoodError, call_of, compiled_part
from qola.codegen.ck.rows import Row

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
        before, other, condition = _split(head)
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


def _split(head: str) -> tuple[str, bool, str | None]:
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
