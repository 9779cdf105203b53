"""Which conditions leave nothing for one behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import product

from qola.codegen.ck.conditions import Formula, Part

#: Of conditions that those in front leave open.
_MOST_PARTS = 8
_MULTIPLE = re.compile(r"(a\.\w+ %) ([1-9]\d*) == 0")
_BOUND = re.compile(r"([at]\.\w+ <=) (\d+)")

Conjuncts = tuple[Formula, ...]
Known = dict[str, bool]


def covering(behind: Conjuncts, front: Sequence[Conjuncts]) -> tuple[int, ...]:
    """Return which conditions take all that one behind them would, () where some is left.

    Every way in which the parts can turn out that the condition behind leaves open is tried.

    Returns:
        Indices into `front`: of a condition that does so alone where there is one, else of all
        that take some.
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
    """Return whether all formulas hold, None where that depends on parts that are not known.

    Args:
        open_: gets these parts.
    """
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
        return _all(formula.of, known, open_)
    values = [_value(one, known, open_) for one in formula.of]
    return True if True in values else None if None in values else False


def _follows(part: str, known: Mapping[str, bool]) -> bool:
    """Whether a comparison holds because another does.

    What is a multiple of 64 is one of 8, and what is at most 64 is at most 128.
    """
    what, step, bound = _number(part)
    if not what:
        return False
    if step == 1:
        return True
    others = (_number(other) for other, holds in known.items() if holds)
    return any(
        what == same and ((step and number % step == 0) or (not step and limit <= bound))
        for same, number, limit in others
    )


@cache
def _number(part: str) -> tuple[str, int, int]:
    """Return what a comparison is of, the step that it asks for, and the limit; "" for others."""
    if match := _MULTIPLE.fullmatch(part):
        return match[1], int(match[2]), 0
    if match := _BOUND.fullmatch(part):
        return match[1], 0, int(match[2])
    return "", 0, 0
