"""Problems in the words of a command line: dtype=bf16 seqlen_q=4096 hdim=128 mask=causal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qola.errors import Finding
from qola.fmha.problem import ArraysError, Problem
from qola.fmha.problem_lines import read
from qola.manifest.values import nearest

_PLACE, _TITLE = "the command line", "these words do not describe a problem"
_SWITCHES = ("lse", "dbias", "deterministic", "assembly")
_YES, _NO = ("yes", "true", "1", "y"), ("no", "false", "0", "n")
_MASKS: Mapping[str, Mapping[str, Any]] = {
    "no": {"kind": "no"},
    "causal": {"kind": "bottom_right", "right": 0},
    "top_left": {"kind": "top_left"},
    "bottom_right": {"kind": "bottom_right"},
}
_NUMBERS = ("batch", "nhead_q", "nhead_k", "page_block_size", "num_splits")
_WINDOW = ("window_size_left", "window_size_right")
FIELDS = (
    *("dtype", "hdim", "seqlen_q", "seqlen_k", "direction", "mode", "mask", "bias"),
    *("dropout", "logits_soft_cap", *_NUMBERS, *_WINDOW, *_SWITCHES),
)
"""What a word may begin with."""

_NEEDED = ("dtype", "hdim", "seqlen_q")
_MOST = 2**31 - 1
#: Sequences of one problem: more than any framework batches.
_MOST_SEQUENCES = 1 << 16
#: Names of `Problem`'s fields, as its JSON reader reports them, and the words for them.
_WORD_OF = {
    **{"mask.left": "window_size_left", "mask.right": "window_size_right", "mask.kind": "mask"},
    **{"rows": "seqlen_q", "columns": "seqlen_k", "hdim_q": "hdim", "hdim_v": "hdim"},
    **{"page": "page_block_size", "splits": "num_splits", "soft_cap": "logits_soft_cap"},
    **{"dropout.probability": "dropout", "group": "mode"},
}
_FIELD_NAME = re.compile(rf"\b(?:{'|'.join(map(re.escape, _WORD_OF))})\b")


def parse_problem_words(words: Sequence[str], direction: str) -> Problem:
    """Return the problem that words describe.

    Args:
        direction: of the problem, unless the words name one.

    Raises:
        ArraysError: with all that is wrong with any word.
    """
    given: dict[str, str] = {}
    wrong: list[Finding] = []
    for word in words:
        field, equals, value = word.partition("=")
        if equals and field in FIELDS and value:
            if field in given:
                earlier = f"{field}={given[field]} {word}"
                wrong.append(Finding(earlier, f"{field} twice", f"{field} once"))
            given[field] = value
            continue
        meant = nearest(field, FIELDS)
        fix = f"did you mean {meant}={value or '...'}?" if meant else ""
        wrong.append(Finding(word, "no field of a problem", ", ".join(FIELDS), fix))
    missing = [field for field in _NEEDED if field not in given]
    if missing:
        wrong.append(
            Finding(
                _PLACE,
                f"no {', '.join(missing)}",
                "a problem",
                "dtype=bf16 seqlen_q=4096 hdim=128 mask=causal",
            )
        )
    values = {} if missing else _values(given, direction, wrong)
    if wrong:
        raise ArraysError(wrong, _TITLE)
    try:
        (problem,) = read(json.dumps(values), _PLACE)
    except ArraysError as error:
        raise ArraysError([_in_words(one) for one in error.findings], _TITLE) from None
    return problem


def parse_for_directions(words: Sequence[str], directions: Sequence[str]) -> list[Problem]:
    """Return the problem for each direction that can have it; the first one only if words name one.

    Raises:
        ArraysError: with all that is wrong, where no direction can have the problem.
    """
    asked = directions[:1] if has_field(words, "direction") else directions
    parsed = [_parse_or_refuse(words, direction) for direction in asked]
    problems = [one for one in parsed if isinstance(one, Problem)]
    refusals = [one for one in parsed if isinstance(one, ArraysError)]
    if refusals and not problems:
        raise refusals[0]
    return problems


def _parse_or_refuse(words: Sequence[str], direction: str) -> Problem | ArraysError:
    try:
        return parse_problem_words(words, direction)
    except ArraysError as error:
        return error


def _in_words(finding: Finding) -> Finding:
    """Return a finding about a field of `Problem` with the word's name in place of the field's."""

    def named(text: str) -> str:
        return _FIELD_NAME.sub(lambda match: _WORD_OF[match[0]], text)

    place = finding.place.removeprefix(f"{_PLACE}:1 ")
    return replace(finding, place=named(place), expected=named(finding.expected))


def has_field(words: Sequence[str], field: str) -> bool:
    """Whether words say something about a field."""
    return any(word.startswith(f"{field}=") for word in words)


def _values(given: Mapping[str, str], direction: str, wrong: list[Finding]) -> dict[str, Any]:
    """Return the fields of `Problem` as JSON has them; note what is wrong."""

    def take(field: str, default: Any, convert: Callable[[str], Any], expected: str) -> Any:
        if field not in given:
            return default
        try:
            return convert(given[field])
        except (KeyError, ValueError):
            wrong.append(Finding(f"{field}={given[field]}", given[field], expected))
            return default

    def one_of(field: str, default: str, known: Sequence[str]) -> str:
        found: str = take(field, default, lambda text: known[known.index(text)], ", ".join(known))
        return found

    whole = "a whole number of at least 1"
    lengths = f"{whole}, or such numbers with , between"
    hdims = take("hdim", [1, 1], _hdims, "a head dimension such as 128, or two such as 192x128")
    rows = take("seqlen_q", [1], _lengths, lengths)
    columns = take("seqlen_k", rows, _lengths, lengths)
    mode = one_of("mode", "group" if len(rows) > 1 else "batch", ("batch", "group"))
    batch = take("batch", 1, _positive, whole)
    nhead_q = take("nhead_q", 1, _positive, whole)
    mask = dict(_MASKS[one_of("mask", "no", tuple(_MASKS))])
    for field, side in zip(_WINDOW, ("left", "right"), strict=True):
        if field in given:
            mask[side] = take(field, -1, int, "a whole number of at least -1")
    dropout = take("dropout", 0.0, float, "a probability")
    if len(rows) * batch > _MOST_SEQUENCES:
        expected = f"at most {_MOST_SEQUENCES} sequences"
        wrong.append(Finding(f"batch={batch}", f"{len(rows) * batch} sequences", expected))
        batch = 1
    values = {
        "direction": given.get("direction", direction),
        "dtype": given["dtype"],
        "hdim_q": hdims[0],
        "hdim_v": hdims[1],
        "group": mode == "group",
        "rows": rows * batch,
        "columns": columns * batch,
        "nhead_q": nhead_q,
        "nhead_k": take("nhead_k", nhead_q, _positive, whole),
        "scale": hdims[0] ** -0.5,
        "mask": mask,
        "bias": one_of("bias", "no", ("no", "bias", "alibi")),
        "dropout": {"probability": dropout} if dropout else None,
        "soft_cap": take("logits_soft_cap", 0.0, float, "a number"),
    }
    for field, name in (("page_block_size", "page"), ("num_splits", "splits")):
        if field in given:
            values[name] = take(field, 1, _positive, whole)
    for field in _SWITCHES:
        if field in given:
            values[field] = take(field, False, _switch, "yes or no")
    return values


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MOST:
        raise ValueError
    return value


def _lengths(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _hdims(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text, re.ASCII)
    if match is None:
        raise ValueError
    return _positive(match[1]), _positive(match[2] or match[1])


def _switch(text: str) -> bool:
    if text.lower() in _NO:
        return False
    return bool((_YES.index(text.lower()), True)[1])
