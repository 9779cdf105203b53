"""Makes problems of fields, of lines of JSON and of FIELD=VALUE words, and checks them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from qola.aiter.attention import ENTRIES
from qola.common.suggestions import nearest
from qola_base.errors import Finding
from qola_base.json_types import WrongValueError, parse_json
from qola_lab.problems.problem import (
    BIAS_TYPES,
    DEFAULTS,
    DTYPES,
    MASK_TYPES,
    ROPE_TYPES,
    AttentionProblem,
    Layout,
    ProblemError,
    default_scale,
)

_MOST = 2**31 - 1
_SEED = 2**64 - 1
#: Sequences of one problem: more than any framework batches.
_MOST_SEQUENCES = 1 << 16
_FEW_SEQUENCES = f"at most {_MOST_SEQUENCES} sequences"
_APPENDS = ("seqlen_knew", "rope_type", "rotary_dim")
#: Fields for which the arguments of a direction have no member.
_NOT_OF = {
    "fwd": ("has_dbias", "deterministic", "page_block_size", "num_splits", *_APPENDS),
    "fwd_splitkv": ("has_dbias", "deterministic", "dropout_p", "min_seqlen_q", *_APPENDS),
    "batch_prefill": ("has_dbias", "deterministic", "min_seqlen_q", "num_splits", *_APPENDS),
    "pagedkv_prefill": ("has_dbias", "deterministic", "dropout_p", "num_splits", *_APPENDS),
    "fwd_appendkv": (
        *("bias_type", "has_dbias", "deterministic", "dropout_p", "return_lse"),
        *("logits_soft_cap", "num_splits", "has_sink"),
    ),
    "bwd": ("min_seqlen_q", "page_block_size", "logits_soft_cap", "num_splits", *_APPENDS),
}


Fields = dict[str, Any]
"""The fields of a problem as JSON values that are not checked yet."""


@dataclass(frozen=True)
class _Kind:
    """The values that a field may have.

    Attributes:
        expected: the values in words.
        parse: makes a value of text; it raises ValueError or KeyError.
    """

    holds: Callable[[Any], bool]
    expected: str
    parse: Callable[[str], Any]


def _whole(least: int, most: int = _MOST) -> _Kind:
    text = f"a whole number of at least {least}" if most == _MOST else f"{least} to {most}"
    return _Kind(lambda value: type(value) is int and least <= value <= most, text, int)


def _number(holds: Callable[[float], bool], text: str) -> _Kind:
    most = sys.float_info.max
    # Integers of JSON may be too large for a float, and no order holds for NaN.
    return _Kind(lambda n: type(n) in (int, float) and -most <= n <= most and holds(n), text, float)


def _one_of(*known: str) -> _Kind:
    return _Kind(lambda value: value in known, f"one of {', '.join(known)}", str)


_SWITCHES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_SWITCH = _Kind(
    lambda value: type(value) is bool, "true or false", lambda text: _SWITCHES[text.lower()]
)
_LENGTH = _whole(0)
_SEQLENS = _Kind(
    lambda value: type(value) in (list, tuple) and value != [] and all(map(_LENGTH.holds, value)),
    "a list with a length for each sequence",
    lambda text: [int(part) for part in text.split(",")],
)
_KINDS: Mapping[str, _Kind] = {
    "direction": _one_of(*ENTRIES),
    "dtype": _one_of(*DTYPES),
    **dict.fromkeys(("hdim_q", "hdim_v", "nhead_q", "nhead_k", "num_splits"), _whole(1)),
    **dict.fromkeys(("seqlen_q", "seqlen_k"), _SEQLENS),
    "softmax_scale": _number(lambda _: True, "a number"),
    "mode": _one_of("batch", "group"),
    "mask_type": _one_of(*MASK_TYPES),
    **dict.fromkeys(("window_size_left", "window_size_right"), _whole(-1)),
    "bias_type": _one_of(*BIAS_TYPES),
    "nhead_bias": _whole(1),
    **dict.fromkeys(("batched_alibi_slopes", "return_lse", "has_dbias", "deterministic"), _SWITCH),
    **dict.fromkeys(("has_sink", "use_asm", "is_v3_atomic_fp32"), _SWITCH),
    "dropout_p": _number(lambda value: 0 <= value < 1, "a number of at least 0, and below 1"),
    **dict.fromkeys(("drop_seed", "drop_offset", "page_seed"), _whole(0, _SEED)),
    "logits_soft_cap": _number(lambda value: value >= 0, "a number of at least 0"),
    **dict.fromkeys(("min_seqlen_q", "page_block_size", "row_padding"), _whole(0)),
    **dict.fromkeys(("seqlen_knew", "rotary_dim"), _whole(0)),
    "rope_type": _one_of(*ROPE_TYPES),
    "how_v3_bf16_cvt": _whole(0, 2),
    "order": _one_of("bshd", "bhsd"),
}
_NUMBERS = ("softmax_scale", "dropout_p", "logits_soft_cap")
REQUIRED = ("direction", "dtype", "hdim_q", "seqlen_q", "seqlen_k", "nhead_q")
"""Fields without which `from_fields` makes no problem."""
FIELDS = tuple(_KINDS)
"""All fields of a problem."""


def from_fields(values: Fields, place: str = "") -> AttentionProblem:
    """Return the problem with these fields; the others have their default values.

    Args:
        values: of AttentionProblem and Layout, by name, as JSON has them. hdim_v is by default
            hdim_q, nhead_k nhead_q, and softmax_scale 1 / sqrt(hdim_q).
        place: of the fields, for messages.

    Raises:
        ProblemError: with every error.
    """
    prefix = f"{place} " if place else ""
    wrong = list(_check_each(values, prefix)) or list(_check_together(values, prefix))
    if wrong:
        raise ProblemError(wrong)
    whole = {
        "hdim_v": values["hdim_q"],
        "nhead_k": values["nhead_q"],
        "softmax_scale": default_scale(values["hdim_q"]),
        **values,
        **{name: tuple(values[name]) for name in ("seqlen_q", "seqlen_k")},
        **{name: float(values[name]) for name in _NUMBERS if name in values},
    }
    layout = {f.name: whole.pop(f.name) for f in fields(Layout) if f.name in whole}
    return AttentionProblem(**whole, layout=Layout(**layout))


def _check_each(values: Fields, prefix: str) -> Iterator[Finding]:
    for name in REQUIRED:
        if name not in values:
            yield Finding(f"{prefix}{name}", "left out", _KINDS[name].expected)
    for name, value in values.items():
        if name not in _KINDS:
            yield Finding(f"{prefix}{name}", "an unknown field", ", ".join(_KINDS), _near(name))
        elif not _KINDS[name].holds(value):
            yield Finding(f"{prefix}{name}", _shown(value), _KINDS[name].expected)


def _near(name: str, text: str = "") -> str:
    near = _SAME_FIELDS.get(name) or nearest(name, (*_KINDS, *_SHORTHANDS))
    if text.lower() in ("=yes", "=true", "=1"):
        text = f"={_SET.get(name.removeprefix('has_'), text[1:])}"
    return f"did you mean {near}{text}?" if near else ""


def _check_together(values: Fields, prefix: str) -> Iterator[Finding]:
    """Yield contradictions between fields whose values are valid."""
    direction, mode = values["direction"], values.get("mode", "batch")
    counts = [len(values[name]) for name in ("seqlen_q", "seqlen_k")]
    if counts[0] != counts[1]:
        found = f"{counts[0]} and {counts[1]} lengths"
        yield Finding(f"{prefix}seqlen_q, seqlen_k", found, "as many of both")
    if counts[0] > _MOST_SEQUENCES:
        yield Finding(f"{prefix}seqlen_q", f"{counts[0]} sequences", _FEW_SEQUENCES)
    for name in ("seqlen_q", "seqlen_k"):
        seqlens = values[name]
        # Rows are appended to sequences of any length.
        uneven = (direction, name) == ("fwd_appendkv", "seqlen_k")
        if mode == "batch" and ((len(set(seqlens)) > 1 and not uneven) or not seqlens[0]):
            expected = "one length above 0 for all sequences, or mode group"
            yield Finding(f"{prefix}{name}", _shown(seqlens), expected)
        elif not sum(seqlens):
            yield Finding(f"{prefix}{name}", _shown(seqlens), "a length above 0")
    nhead_q, nhead_k = values["nhead_q"], values.get("nhead_k", 1)
    if nhead_q % nhead_k:
        found = f"{nhead_k} for {nhead_q} heads of Q"
        yield Finding(f"{prefix}nhead_k", found, "a number that divides nhead_q")
    if values.get("nhead_bias", 1) not in (1, nhead_q):
        yield Finding(f"{prefix}nhead_bias", _shown(values["nhead_bias"]), f"1 or {nhead_q}")
    windows = [name for name in ("window_size_left", "window_size_right") if name in values]
    if values.get("mask_type", "no") == "no" and any(values[name] != -1 for name in windows):
        found, expected = "set, with mask_type no", "-1, or another mask_type"
        yield Finding(f"{prefix}{', '.join(windows)}", found, expected)
    for name in _NOT_OF[direction]:
        if values.get(name, DEFAULTS[name]) != DEFAULTS[name]:
            expected = f"no {name}: arguments of {direction} have none"
            yield Finding(f"{prefix}{name}", _shown(values[name]), expected)


def _shown(value: Any) -> str:
    return json.dumps(value)[:80]


def make_problem(
    direction: str,
    dtype: str,
    *,
    hdim: int | tuple[int, int],
    seqlen_q: int | Sequence[int],
    seqlen_k: int | Sequence[int] | None = None,
    nhead_q: int = 1,
    batch: int = 1,
    **more: Any,
) -> AttentionProblem:
    """Return a problem in batch mode for one length, in group mode for a list of lengths.

    Args:
        hdim: of Q, K and V, or a pair: of Q and K, and of V.
        seqlen_k: by default seqlen_q. For fwd_appendkv a list in batch mode too.
        batch: number of sequences of each length.
        more: other fields of AttentionProblem and of its layout.

    Raises:
        ProblemError: with every error.
    """
    values: Fields = {"direction": direction, "dtype": dtype, "nhead_q": nhead_q}
    values["mode"] = "batch" if isinstance(seqlen_q, int) else "group"
    q, k = (
        [length] if isinstance(length, int) else [*length]
        for length in (seqlen_q, seqlen_q if seqlen_k is None else seqlen_k)
    )
    if direction == "fwd_appendkv" and len(q) == 1:
        q *= len(k)
    values |= {"seqlen_q": q * batch, "seqlen_k": k * batch}
    values["hdim_q"], values["hdim_v"] = (hdim, hdim) if isinstance(hdim, int) else hdim
    return from_fields(values | more)


def parse_lines(text: str, name: str) -> list[AttentionProblem]:
    """Return the problems of a file that has an object of JSON with fields on each line.

    Args:
        name: of the file, for messages.

    Raises:
        ProblemError: with the errors of all lines.
    """
    found, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        try:
            values = parse_json(line)
            if type(values) is dict:
                found.append(from_fields(values, place))
            else:
                wrong.append(Finding(place, _shown(values), "an object with fields of a problem"))
        except WrongValueError as error:
            wrong.append(Finding(place, str(error), "a line of JSON"))
        except ProblemError as error:
            wrong += error.findings
    if wrong:
        raise ProblemError(wrong, "the file has lines that are not problems")
    return found


_TITLE = "these words do not describe a problem"
_EXAMPLE = "dtype=bf16 seqlen_q=4096 hdim=128 mask_type=causal"
_SAME_FIELDS = {
    **{"mask": "mask_type", "has_mask": "mask_type", "bias": "bias_type", "has_bias": "bias_type"},
    **{
        "alibi": "bias_type",
        "has_alibi": "bias_type",
        "lse": "return_lse",
        "has_lse": "return_lse",
    },
    **{"dropout": "dropout_p", "has_dropout": "dropout_p", "dbias": "has_dbias"},
    **{"logits": "logits_soft_cap", "sink": "has_sink"},
}
"""Fields of a problem by the names that manifests and configs of kernels have for them."""
_SET = {"mask": "causal", "bias": "bias", "alibi": "alibi", "dropout": "0.1", "logits": "30"}
"""Values of these fields for a flag that is set."""
#: Words for several fields, and their values.
_SHORTHANDS = {
    "hdim": _Kind(lambda _: True, "a head dimension such as 128, or two such as 192x128", str),
    "batch": _whole(1, _MOST_SEQUENCES),
}
WORDS = (*_SHORTHANDS, *FIELDS)
"""Fields that words may set: hdim sets hdim_q and hdim_v, batch repeats the sequences."""


def parse_words(words: Sequence[str], direction: str) -> AttentionProblem:
    """Return the problem that FIELD=VALUE words describe.

    nhead_q is by default 1 and seqlen_k seqlen_q; mask_type=causal is short for bottom_right with
    window_size_right=0.

    Args:
        direction: used if no word names one.

    Raises:
        ProblemError: with every error.
    """
    given: dict[str, str] = {}
    values: dict[str, Any] = {"direction": direction, "nhead_q": 1}
    wrong: list[Finding] = []
    for word in words:
        name, _, text = word.partition("=")
        if not text or name not in WORDS:
            fix = _near(name, f"={text or '...'}")
            wrong.append(Finding(word, "not a field of a problem", ", ".join(WORDS), fix))
        elif name in given:
            wrong.append(Finding(f"{name}={given[name]} {word}", f"{name} twice", f"{name} once"))
        else:
            given[name] = text
            try:
                values |= _parse_word(name, text)
            except (KeyError, ValueError):
                kind = _SHORTHANDS.get(name) or _KINDS[name]
                wrong.append(Finding(word, text, kind.expected))
    missing = [name for name in ("dtype", "seqlen_q") if name not in given]
    missing += ["hdim"] if not {"hdim", "hdim_q"} & given.keys() else []
    if missing:
        found = f"no {', '.join(missing)}"
        wrong.append(Finding("the command line", found, "a problem", _EXAMPLE))
    if wrong:
        raise ProblemError(wrong, _TITLE)
    batch, appends = values.pop("batch", 1), values["direction"] == "fwd_appendkv"
    q, k = values["seqlen_q"], values.get("seqlen_k", values["seqlen_q"])
    mode = "batch" if len(q) == 1 or appends else "group"
    if appends and len(q) == 1:
        q = q * len(k)
    if batch * max(len(q), len(k)) > _MOST_SEQUENCES:
        found = f"{batch * len(q)} sequences"
        raise ProblemError(Finding(f"batch={batch}", found, _FEW_SEQUENCES), _TITLE)
    try:
        return from_fields({"mode": mode, **values, "seqlen_q": q * batch, "seqlen_k": k * batch})
    except ProblemError as error:
        raise ProblemError(error.findings, _TITLE) from None


def _parse_word(name: str, text: str) -> Fields:
    """Return the fields that a word sets; raise KeyError or ValueError for a wrong value."""
    if name == "hdim":
        sizes = [int(size) for size in text.split("x")]
        hdim_q, hdim_v = sizes if len(sizes) > 1 else sizes * 2
        return {"hdim_q": hdim_q, "hdim_v": hdim_v}
    if (name, text) == ("mask_type", "causal"):
        return {"mask_type": "bottom_right", "window_size_right": 0}
    if name == "batch" and not _SHORTHANDS[name].holds(int(text)):
        raise ValueError(text)
    return {name: int(text) if name == "batch" else _KINDS[name].parse(text)}


def parse_for_directions(words: Sequence[str], directions: Sequence[str]) -> list[AttentionProblem]:
    """Return the problem for each direction that can have it; for one only if words name it.

    Raises:
        ProblemError: no direction can have the problem; the errors are those of the first.
    """
    if any(word.startswith("direction=") for word in words):
        directions = directions[:1]
    problems: list[AttentionProblem] = []
    errors: list[ProblemError] = []
    for direction in directions:
        try:
            problems.append(parse_words(words, direction))
        except ProblemError as error:  # noqa: PERF203
            errors.append(error)
    if not problems:
        raise errors[0]
    return problems
