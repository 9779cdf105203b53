"""Problems of a file, a line of JSON each: what is wrong with them is told all at once."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from qola.aiter.attention import ENTRIES
from qola.errors import Finding
from qola.fmha.problem import ArraysError, Problem
from qola.json_types import WrongValueError, parse_json
from qola.verify.problem import BIASES, MASKS, ROPES
from qola.verify.tensors import DTYPES

Values = Mapping[str, Any]
#: Whether a value is right, and what would be.
Check = tuple[Callable[[Any], bool], str]

_MOST = 2**31 - 1
_SEED = 2**64 - 1
#: What arguments of a direction have no place for.
_APPENDS = ("new", "rope", "rotary")
_NOT_OF = {
    "fwd": ("dbias", "deterministic", "page", "splits", *_APPENDS),
    "fwd_splitkv": ("dbias", "deterministic", "dropout", "min_rows", *_APPENDS),
    "batch_prefill": ("dbias", "deterministic", "min_rows", "splits", *_APPENDS),
    "pagedkv_prefill": ("dbias", "deterministic", "dropout", "splits", *_APPENDS),
    "fwd_appendkv": ("bias", "dbias", "deterministic", "dropout", "lse", "soft_cap", "splits"),
    "bwd": ("min_rows", "page", "soft_cap", "splits", *_APPENDS),
}
_DEFAULTS = {f.name: f.default for f in fields(Problem) if f.default is not MISSING}


def _whole(least: int, most: int = _MOST) -> Check:
    words = f"a whole number of at least {least}" if most == _MOST else f"{least} to {most}"
    return lambda value: type(value) is int and least <= value <= most, words


def _number(holds: Callable[[float], bool], words: str) -> Check:
    def right(value: Any) -> bool:
        # An integer may be too large for a float.
        whole = type(value) is int and abs(value) <= _SEED
        return (whole or (type(value) is float and math.isfinite(value))) and holds(value)

    return right, words


def _one_of(*words: str) -> Check:
    return lambda value: value in words, f"one of {', '.join(words)}"


def _lengths(value: Any) -> bool:
    return type(value) is list and bool(value) and all(_whole(0)[0](one) for one in value)


_SWITCH: Check = (lambda value: type(value) is bool, "true or false")
_LENGTHS: Check = (_lengths, "a list with a length for each sequence")
_CHECKS: Mapping[str, Check] = {
    "direction": _one_of(*ENTRIES),
    "dtype": _one_of(*DTYPES),
    **dict.fromkeys(("hdim_q", "hdim_v", "nhead_q", "nhead_k", "splits"), _whole(1)),
    **dict.fromkeys(("min_rows", "page", "units", "more_stride", "new", "rotary"), _whole(0)),
    **dict.fromkeys(("rows", "columns"), _LENGTHS),
    **dict.fromkeys(("group", "lse", "dbias", "deterministic", "assembly"), _SWITCH),
    **dict.fromkeys(("batched_slopes", "dq_in_float"), _SWITCH),
    "scale": _number(lambda _: True, "a number"),
    "soft_cap": _number(lambda value: value >= 0, "a number of at least 0"),
    "magnitude": _number(lambda value: value > 0, "a number above 0"),
    "bias": _one_of(*BIASES),
    "bias_heads": _whole(1),
    "rope": _one_of(*ROPES),
    "conversion": _whole(0, 2),
    "order": _one_of("bshd", "bhsd"),
    "data_seed": _whole(0, _SEED),
}
_NEEDED = tuple(f.name for f in fields(Problem) if f.name in _CHECKS and f.name not in _DEFAULTS)
_MASK: Mapping[str, Check] = {
    "kind": _one_of(*MASKS),
    **dict.fromkeys(("left", "right"), _whole(-1)),
}
_DROPOUT: Mapping[str, Check] = {
    "probability": _number(lambda value: 0 <= value < 1, "a number of at least 0, and below 1"),
    **dict.fromkeys(("seed", "offset"), _whole(0, _SEED)),
}
#: Of objects: what their keys may have, and which they need.
_OBJECTS: Mapping[str, tuple[Mapping[str, Check], tuple[str, ...]]] = {
    "mask": (_MASK, ()),
    "dropout": (_DROPOUT, ("probability",)),
}


def read(text: str, name: str) -> list[Problem]:
    """Return the problems of a file: each line as `Problem.to_json` writes it, or a part of that.

    Args:
        name: of the file, for messages.

    Raises:
        ArraysError: with all that is wrong with any line.
    """
    found, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            values = parse_json(line)
        except WrongValueError as error:
            wrong.append(Finding(place, str(error), "a line of JSON"))
            continue
        if type(values) is not dict:
            wrong.append(Finding(place, _shown(values), "an object with the fields of a problem"))
            continue
        findings = list(_wrong(values, place))
        wrong += findings
        if not findings:
            found.append(Problem.from_json(line))
    if wrong:
        raise ArraysError(wrong, "the file has lines that are no problems")
    return found


def _wrong(values: Values, place: str) -> Iterator[Finding]:
    findings = list(_wrong_object(values, _CHECKS, _NEEDED, f"{place} ", (*_CHECKS, *_OBJECTS)))
    for name, (checks, needed) in _OBJECTS.items():
        value = values.get(name, {})
        if name not in values or (name == "dropout" and value is None):
            continue
        if type(value) is dict:
            findings += _wrong_object(value, checks, needed, f"{place} {name}.", tuple(checks))
        else:
            expected = f"an object with {', '.join(checks)}"
            findings.append(Finding(f"{place} {name}", _shown(value), expected))
    # What fits together is asked of values that are right by themselves.
    yield from findings or _wrong_together(values, place)


def _wrong_object(
    values: Values,
    checks: Mapping[str, Check],
    needed: Iterable[str],
    place: str,
    known: Sequence[str],
) -> Iterator[Finding]:
    for name in needed:
        if name not in values:
            yield Finding(f"{place}{name}", "left out", checks[name][1])
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            fix = f"perhaps {near[0]}" if near else ""
            yield Finding(f"{place}{name}", "an unknown key", ", ".join(known), fix)
        elif name in checks and not checks[name][0](value):
            yield Finding(f"{place}{name}", _shown(value), checks[name][1])


def _wrong_together(values: Values, place: str) -> Iterator[Finding]:
    rows, columns, direction = values["rows"], values["columns"], values["direction"]
    if len(rows) != len(columns):
        words = f"{len(rows)} and {len(columns)} lengths"
        yield Finding(f"{place} rows, columns", words, "as many of both")
    for name, lengths in (("rows", rows), ("columns", columns)):
        # What is appended goes behind as many rows as each sequence has.
        uneven = (direction, name) == ("fwd_appendkv", "columns")
        if not values["group"] and ((len(set(lengths)) > 1 and not uneven) or not lengths[0]):
            expected = "one length above 0 for all sequences, or group true"
            yield Finding(f"{place} {name}", _shown(lengths), expected)
        elif not sum(lengths):
            yield Finding(f"{place} {name}", _shown(lengths), "a length above 0")
    heads, shared = values["nhead_q"], values["nhead_k"]
    if heads % shared:
        words = f"{shared} for {heads} heads of Q"
        yield Finding(f"{place} nhead_k", words, "a number that divides them")
    if values.get("bias_heads", 1) not in (1, heads):
        yield Finding(f"{place} bias_heads", _shown(values["bias_heads"]), f"1 or {heads}")
    mask = values.get("mask", {})
    if mask.get("kind", "no") == "no" and (mask.get("left", -1), mask.get("right", -1)) != (-1, -1):
        yield Finding(f"{place} mask.left, mask.right", "set, with kind no", "-1, or another kind")
    for name in _NOT_OF.get(direction, ()):
        if values.get(name, _DEFAULTS[name]) != _DEFAULTS[name]:
            expected = f"no {name}: arguments of {direction} have none"
            yield Finding(f"{place} {name}", _shown(values[name]), expected)


def _shown(value: Any) -> str:
    return json.dumps(value)[:80]
