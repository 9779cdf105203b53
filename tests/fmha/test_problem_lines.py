"""Problems of a file: what is read, and what is said of lines that are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qola.fmha.problem import ArraysError, problem
from qola.fmha.problem_lines import read

FORWARD = problem("fwd", "bf16", rows=100, columns=130, heads=4, heads_k=2, hdim=64, lse=True)
SHORT: dict[str, Any] = {
    **{"direction": "fwd", "dtype": "bf16", "hdim_q": 64, "hdim_v": 64, "group": False},
    **{"rows": [100], "columns": [130], "nhead_q": 4, "nhead_k": 2, "scale": 0.125},
}


def told(*lines: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ArraysError) as error:
        read("\n".join(lines), "mine")
    return [(one.place, one.found, one.expected) for one in error.value.findings]


def test_problems_of_a_file() -> None:
    """Prevents: a line that says less than all, refused; or one that is none, passed over."""
    text = f"{FORWARD.to_json()}\n\n{json.dumps(SHORT | {'lse': True})}\n"
    assert read(text, "mine") == [FORWARD, FORWARD]
    dropped = {"mask": {"kind": "top_left", "right": 0}, "dropout": {"probability": 0.5}}
    (of,) = read(json.dumps(SHORT | dropped), "mine")
    assert (of.mask.kind, of.mask.left, of.mask.right) == ("top_left", -1, 0)
    assert of.dropout is not None


def test_lines_that_are_none() -> None:
    """Prevents: a mistake that is told without its line, or one at a time."""
    found = told(FORWARD.to_json(), "[1]", "{", json.dumps({"dtype": "bf16"}))
    places = [place for place, *_ in found]
    assert places[:2] == ["mine:2", "mine:3"]
    assert set(places[2:]) == {f"mine:4 {name}" for name in SHORT if name != "dtype"}


@pytest.mark.parametrize(
    ("changes", "place", "found", "expected"),
    [
        ({"dtype": "bfloat16"}, "dtype", '"bfloat16"', "bf16"),
        ({"direction": "forward"}, "direction", '"forward"', "fwd, fwd_splitkv"),
        ({"hdim_q": "64"}, "hdim_q", '"64"', "a whole number of at least 1"),
        ({"hdim_q": True}, "hdim_q", "true", "a whole number"),
        ({"rows": 100}, "rows", "100", "a list"),
        ({"rows": [100, -1], "group": True}, "rows", "[100, -1]", "a list"),
        ({"rows": [100, 90], "columns": [1, 1]}, "rows", "[100, 90]", "group true"),
        ({"rows": [100, 100]}, "rows, columns", "2 and 1 lengths", "as many"),
        ({"group": True, "columns": [0]}, "columns", "[0]", "above 0"),
        ({"nhead_k": 3}, "nhead_k", "3 for 4", "divides"),
        ({"bias_heads": 2}, "bias_heads", "2", "1 or 4"),
        ({"scale": float("nan")}, "scale", "NaN", "a number"),
        ({"colour": 3}, "colour", "an unknown key", "dtype"),
        ({"mask": "causal"}, "mask", '"causal"', "an object with kind"),
        ({"mask": {"kind": "causal"}}, "mask.kind", '"causal"', "top_left"),
        ({"mask": {"side": 1}}, "mask.side", "an unknown key", "kind, left, right"),
        ({"mask": {"left": 4}}, "mask.left, mask.right", "set, with kind no", "another kind"),
        ({"dropout": {"seed": 1}}, "dropout.probability", "left out", "below 1"),
        ({"dropout": {"probability": 1}}, "dropout.probability", "1", "below 1"),
        ({"dbias": True}, "dbias", "true", "arguments of fwd have none"),
        ({"page": 16}, "page", "16", "arguments of fwd have none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(
    changes: dict[str, Any], place: str, found: str, expected: str
) -> None:
    """Prevents: a problem that means another one, and a message that leaves one guessing."""
    ((where, what, right),) = told(json.dumps(SHORT | changes))
    assert what.startswith(found)
    assert what.startswith(found)
    assert where == f"mine:1 {place}"
    assert expected in right


def test_all_at_once() -> None:
    """Prevents: a file that is corrected one mistake after the other."""
    found = told(json.dumps(SHORT | {"lse": 1, "lze": True}), json.dumps(SHORT | {"nhead_k": 0}))
    assert [place for place, *_ in found] == ["mine:1 lse", "mine:1 lze", "mine:2 nhead_k"]
