"""Problems parsed from JSON lines and from options, and the errors of wrong problems."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qola_lab.problems import ProblemError, make_problem, parse_lines, parse_words
from qola_lab.problems.fields import parse_for_directions
from qola_lab.problems.problem import condition_text
from qola_lab.reference.masks import Mask

FORWARD = make_problem(
    "fwd", "bf16", seqlen_q=100, seqlen_k=130, nhead_q=4, nhead_k=2, hdim=64, return_lse=True
)
SHORT: dict[str, Any] = {
    **{"direction": "fwd", "dtype": "bf16", "hdim_q": 64, "seqlen_q": [100], "seqlen_k": [130]},
    **{"nhead_q": 4, "nhead_k": 2},
}


def errors(*lines: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ProblemError) as error:
        parse_lines("\n".join(lines), "mine")
    return [(finding.place, finding.found, finding.expected) for finding in error.value.findings]


def test_lines() -> None:
    """Prevents: a line refused because it leaves out defaults, or a skipped line."""
    text = f"{FORWARD.to_json()}\n\n{json.dumps(SHORT | {'return_lse': True})}\n"
    assert parse_lines(text, "mine") == [FORWARD, FORWARD]
    other_fields = {
        "mask_type": "top_left",
        "window_size_right": 0,
        "page_seed": 3,
        "softmax_scale": 2,
    }
    (problem,) = parse_lines(json.dumps(SHORT | other_fields), "mine")
    assert (problem.mask, problem.layout.page_seed) == (Mask("top_left", -1, 0), 3)
    assert type(problem.softmax_scale) is float


def test_wrong_lines() -> None:
    """Prevents: an error without its line, or errors reported one at a time."""
    found = errors(FORWARD.to_json(), "[1]", "{", json.dumps({"dtype": "bf16"}))
    places = [place for place, *_ in found]
    assert places[:2] == ["mine:2", "mine:3"]
    assert set(places[2:]) == {
        f"mine:4 {name}" for name in SHORT if name not in ("dtype", "nhead_k")
    }
    found = errors(
        json.dumps(SHORT | {"use_asm": 1, "use_asn": 1}), json.dumps(SHORT | {"nhead_k": 0})
    )
    assert [place for place, *_ in found] == ["mine:1 use_asm", "mine:1 use_asn", "mine:2 nhead_k"]


@pytest.mark.parametrize(
    ("changes", "place", "found", "expected"),
    [
        ({"dtype": "bfloat16"}, "dtype", '"bfloat16"', "bf16"),
        ({"direction": "forward"}, "direction", '"forward"', "fwd, fwd_splitkv"),
        ({"hdim_q": "64"}, "hdim_q", '"64"', "a whole number of at least 1"),
        ({"hdim_q": True}, "hdim_q", "true", "a whole number"),
        ({"seqlen_q": 100}, "seqlen_q", "100", "a list"),
        ({"seqlen_q": [100, -1], "mode": "group"}, "seqlen_q", "[100, -1]", "a list"),
        ({"seqlen_q": [100, 90], "seqlen_k": [1, 1]}, "seqlen_q", "[100, 90]", "mode group"),
        ({"seqlen_q": [100, 100]}, "seqlen_q, seqlen_k", "2 and 1 lengths", "as many"),
        ({"nhead_k": 0}, "nhead_k", "0", "a whole number of at least 1"),
        ({"mode": "group", "seqlen_k": [0]}, "seqlen_k", "[0]", "above 0"),
        ({"nhead_k": 3}, "nhead_k", "3 for 4", "divides"),
        ({"nhead_bias": 2}, "nhead_bias", "2", "1 or 4"),
        ({"softmax_scale": float("nan")}, "softmax_scale", "NaN", "a number"),
        ({"colour": 3}, "colour", "an unknown field", "dtype"),
        ({"mask_type": "causal"}, "mask_type", '"causal"', "top_left"),
        ({"window_size_left": 4}, "window_size_left", "set, with mask_type no", "another"),
        ({"dropout_p": 1}, "dropout_p", "1", "below 1"),
        ({"has_dbias": True}, "has_dbias", "true", "arguments of fwd have none"),
        ({"page_block_size": 16}, "page_block_size", "16", "arguments of fwd have none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_name_the_field(
    changes: dict[str, Any], place: str, found: str, expected: str
) -> None:
    """Prevents: a wrong value accepted with another meaning, or an error without valid values."""
    ((where, error, valid),) = errors(json.dumps(SHORT | changes))
    assert where == f"mine:1 {place}"
    assert error.startswith(found)
    assert expected in valid


def test_every_option_reaches_the_problem() -> None:
    """Prevents: an option that is parsed but has no effect."""
    options = "dtype=fp16 hdim=192x128 seqlen_q=7 seqlen_k=9 batch=2 nhead_q=8 nhead_k=2"
    more_options = "bias_type=alibi mask_type=top_left window_size_left=3 window_size_right=0"
    found = parse_words(
        f"{options} {more_options} return_lse=yes dropout_p=0.5 use_asm=yes".split(), "fwd"
    )
    assert (found.seqlen_q, found.seqlen_k, found.batch) == ((7, 7), (9, 9), 2)
    assert (found.hdim_q, found.hdim_v, found.nhead_q, found.nhead_k) == (192, 128, 8, 2)
    assert (found.mask, found.bias_type) == (Mask("top_left", 3, 0), "alibi")
    assert (found.return_lse, found.use_asm, found.dropout_p, found.mode) == (
        True,
        True,
        0.5,
        "batch",
    )
    options = "dtype=bf16 hdim=64 seqlen_q=7,8 has_dbias=yes deterministic=yes bias_type=bias"
    found = parse_words(options.split(), "bwd")
    assert (found.mode, found.seqlen_q) == ("group", (7, 8))
    assert (found.has_dbias, found.deterministic) == (True, True)
    options = "dtype=bf16 hdim=64 seqlen_q=1 direction=fwd_splitkv num_splits=4 page_block_size=128"
    found = parse_words([*options.split(), "logits_soft_cap=30", "mask_type=causal"], "fwd")
    assert (found.direction, found.num_splits, found.logits_soft_cap) == ("fwd_splitkv", 4, 30.0)
    assert (found.layout.page_block_size, found.mask) == (128, Mask("bottom_right", -1, 0))
    assert parse_words(str(found).split(), "bwd") == found
    uneven = make_problem(
        "fwd_appendkv", "fp16", hdim=64, seqlen_q=5, seqlen_k=[40, 9], seqlen_knew=3
    )
    assert parse_words(str(uneven).split(), "fwd") == uneven


def test_options_of_only_one_direction() -> None:
    """Prevents: a backward problem refused for a field that forward problems lack."""
    options = ["dtype=bf16", "seqlen_q=64", "hdim=128", "deterministic=yes"]
    (problem,) = parse_for_directions(options, ("fwd", "bwd"))
    assert (problem.direction, problem.deterministic) == ("bwd", True)
    found = parse_for_directions(options[:3], ("fwd", "bwd"))
    assert [problem_.direction for problem_ in found] == ["fwd", "bwd"]
    with pytest.raises(ProblemError, match="no deterministic: arguments of fwd have none"):
        parse_for_directions(options, ("fwd",))


def test_conditions_name_fields_of_problems() -> None:
    """Prevents: an error that shows C++ of Composable Kernel to the user."""
    for condition, text in {
        "begins(device_name, 'gfx950')": "arch=gfx950",
        "t.data_type == 'bf16'": "dtype=bf16",
        "t.is_group_mode == True": "mode=group",
        "!(t.mask_type == 'no_mask')": "mask_type != no",
        "t.bias_type == 'elementwise_bias'": "bias_type=bias",
        "t.has_logits_soft_cap == False": "logits_soft_cap=no",
        "t.has_lse == True": "return_lse=yes",
        "a.hdim_q % 128 == 0": "hdim_q % 128=0",
        "t.hdim_q <= 128": "hdim_q <= 128",
        "t.is_deterministic == True": "deterministic=yes",
    }.items():
        assert condition_text(condition) == text
