"""Which rows of a dispatch are unreachable.

A dispatch asks conditions within each other: the arch, the data type, the head dimensions, and
then one row after the other with `else if`. What is behind conditions that take all of its
problems is never entered. Nothing is called unreachable where that is not clear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from qola.codegen.ck.branches import Block, read_branches
from qola.codegen.ck.conditions import Formula, Part, conjuncts
from qola.codegen.ck.covering import Conjuncts, covering
from qola.codegen.ck.link import NotUnderstoodError, call_of
from qola.codegen.ck.rows import Row


class Leaf(NamedTuple):
    """A row of a dispatch as it stands there.

    Attributes:
        conditions: those that lead to it, the outermost first.
        text: what is in its braces and, outside of them, in those around it.
        front: rows in front by which it is unreachable, branch by branch; () where it is not.
    """

    conditions: tuple[str, ...]
    text: str
    front: tuple[range, ...]


def leaves_of(block: Block) -> list[Leaf]:
    """Return the rows of a dispatch in their order."""
    return _Reader().read(block)


class _Reader:
    def __init__(self) -> None:
        self._found: list[Leaf] = []
        self._covering: dict[tuple[Conjuncts, ...], tuple[int, ...]] = {}

    def read(self, block: Block) -> list[Leaf]:
        self._read(block, "", (), ())
        return self._found

    def _read(
        self, block: Block, before: str, above: tuple[str, ...], front: tuple[range, ...]
    ) -> None:
        text = before + block.text.strip()
        if not block.chains and "traits_<" in text:
            self._found.append(Leaf(above, text, front))
        for chain in block.chains:
            groups: dict[Conjuncts, _Group] = {}
            for condition, inner in chain:
                start = len(self._found)
                asked, own = _read_condition(condition)
                group = groups.setdefault(asked, _Group())
                taken = tuple(group.rows[i] for i in self._taking(own, group.conditions))
                self._read(inner, text, (*above, condition), front or taken)
                rows = range(start, len(self._found))
                if rows and own is not None and not taken:
                    group.conditions.append(own)
                    group.rows.append(rows)

    def _taking(self, own: Conjuncts | None, front: Sequence[Conjuncts]) -> tuple[int, ...]:
        """Return what `covering` does; rows of other traits ask the same again."""
        if own is None or not front:
            return ()
        key = (own, *front)
        if key not in self._covering:
            self._covering[key] = covering(own, front)
        return self._covering[key]


@dataclass
class _Group:
    """Branches of a chain that ask for the same traits: those for others take none of theirs."""

    conditions: list[Conjuncts] = field(default_factory=list)
    rows: list[range] = field(default_factory=list)


def _read_condition(condition: str) -> tuple[Conjuncts, Conjuncts | None]:
    """Return the traits that a condition asks for, and what else; None for what is not clear."""
    try:
        formulas = conjuncts(condition)
    except NotUnderstoodError:
        return (), None
    asked: list[Formula] = []
    others: list[Formula] = []
    for one in formulas:
        if one is not True:
            (asked if _is_trait(one) else others).append(one)
    return tuple(asked), tuple(others)


@cache
def _is_trait(formula: Formula) -> bool:
    return isinstance(formula, Part) and formula.text.startswith("t.") and " == " in formula.text


def unreachable(
    rows: Sequence[Row], render: Callable[[Sequence[Row]], str]
) -> dict[str, tuple[Row, ...]]:
    """Return the unreachable rows of a dispatch.

    Args:
        rows: those that it is written of.
        render: writes it of some of them.

    Returns:
        By the row's key, rows in front that take its problems: of others for more head
        dimensions the first one alone. Nothing where the dispatch has another row than these, or
        is another one to rows that are reached without those that are not.
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
