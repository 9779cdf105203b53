"""Problems of a sweep, and what is said of those that differ."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qola.attention import make_problem, parse_lines
from qola.fmha.__main__ import main
from qola.fmha.agreement import Compared
from qola.fmha.sweep import sweep
from qola.verify.case import REFUSED
from tests.support.plans import kernel

FORWARD = make_problem(
    "fwd", "bf16", seqlen_q=100, seqlen_k=130, nhead_q=4, nhead_k=2, hdim=64, return_lse=True
)
FIELDS = {"dtype": "bf16", "hdim_q": 64, "hdim_v": 64, "mode": "batch", "mask": True, "lse": True}
KERNELS = [
    kernel("k", fields=FIELDS),
    kernel("pages", fields={**FIELDS, "pagedkv": True}),
    kernel("bwd", direction="bwd", role="dq_dk_dv", fields={**FIELDS, "mode": "group"}),
    kernel("dot", direction="bwd", role="dot_do_o", fields={}),
]


def test_a_sweep_is_the_same_for_a_seed() -> None:
    """Prevents: a difference that is seen once and never again, and a sweep of one kernel."""
    found = list(sweep(KERNELS, 200))
    assert found == list(sweep(KERNELS, 200))
    assert found != list(sweep(KERNELS, 200, seed=1))
    assert len(set(found)) > 190
    assert {one.direction for one in found} == {"fwd", "bwd"}
    assert {one.mode for one in found} == {"batch", "group"}
    # And what the kernels do not serve.
    assert {one.dtype for one in found} > {"bf16"}
    assert list(sweep([], 5)) == []
    # Each can be written into a file of problems, changed or not.
    assert parse_lines("\n".join(one.to_json() for one in found), "swept") == found


def test_what_is_said_of_a_problem() -> None:
    """Prevents: a library that launches another kernel, or fails, and is said to agree."""
    same = Compared(FORWARD, "gfx950", ("k",), ("k",), ((2, 4, 1),), ("k",))
    assert same.agrees
    assert same.line() == f"{FORWARD} -> k 2x4x1"
    none = Compared(FORWARD, "gfx950", (), (), (), error=f"mha_fwd {REFUSED}")
    assert none.agrees
    assert none.line().endswith("-> none: mha_fwd returned -1: no kernel")
    words = {
        "launched l; selected k": replace(same, launched=("l",), found=("l",)),
        "launched k; find names l": replace(same, found=("l",)),
        "launched k; find names k, k": replace(same, found=("k", "k")),
        "launched k; find names none (status -3)": replace(same, found=(), unfound="status -3"),
        "launched l; selected k; find names k": replace(same, launched=("l",)),
        f"launched none (mha_fwd {REFUSED}); selected k; find names k": replace(
            same, launched=(), error=f"mha_fwd {REFUSED}"
        ),
        "launched none (mha_fwd returned -3); selected none; find names none": replace(
            none, error="mha_fwd returned -3"
        ),
        f"launched none (mha_fwd {REFUSED}); selected k": replace(none, selected=("k",)),
    }
    for said, one in words.items():
        assert (one.agrees, one.line()) == (False, f"{FORWARD}: {said}")
    # Compared with one of both, or with neither.
    unread = replace(same, selected=(), unread="not understood")
    assert (unread.as_selected, unread.agrees) == (None, True)
    assert unread.line() == f"{FORWARD} -> k 2x4x1"
    assert replace(unread, found=()).agrees is False
    unasked = replace(same, found=(), unasked="not a problem for C")
    assert (unasked.as_found, unasked.agrees) == (None, True)
    assert replace(unasked, unread="not understood").agrees is None
    differing = list(words.values())
    values = json.loads(differing[0].to_json())
    assert (values["agrees"], values["launched"], values["problem"]["dtype"]) == (
        *(False, ["l"]),
        "bf16",
    )


def test_an_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a script that has to read an error's text."""
    library = ["--module", "libmha_fwd", "x.so", "caller", "plan.json", "--runtime", "y.so"]
    for words in ([], ["--json"]):
        assert main([*library, "--problems=absent", *words]) == 2
        out, err = capsys.readouterr()
        assert "a file of problems" in err
        found = json.loads(out)["error"]["findings"][0]["place"] if words else out
        assert found == ("absent" if words else "")
