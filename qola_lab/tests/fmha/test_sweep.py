"""Problems of a sweep, and the report of problems that differ."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qola_lab.fmha.__main__ import main
from qola_lab.fmha.agreement import Compared, sweep
from qola_lab.problems import make_problem, parse_lines
from qola_lab.verify.case import REFUSED
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


def test_a_sweep_is_deterministic() -> None:
    """Prevents: a difference that cannot be reproduced, or a sweep of only one kernel."""
    found = list(sweep(KERNELS, 200))
    assert found == list(sweep(KERNELS, 200))
    assert found != list(sweep(KERNELS, 200, seed=1))
    assert len(set(found)) > 190
    assert {problem.direction for problem in found} == {"fwd", "bwd"}
    assert {problem.mode for problem in found} == {"batch", "group"}
    # Some problems have a data type that no kernel serves.
    assert {problem.dtype for problem in found} > {"bf16"}
    assert list(sweep([], 5)) == []
    # Problems do not change when written to a file and read again.
    assert parse_lines("\n".join(problem.to_json() for problem in found), "swept") == found


def test_report_of_a_problem() -> None:
    """Prevents: a wrong or failing launch that is reported as agreement."""
    same = Compared(FORWARD, "gfx950", ("k",), ("k",), ((2, 4, 1),), ("k",))
    assert same.agrees
    assert same.line() == f"{FORWARD} -> k 2x4x1"
    none = Compared(FORWARD, "gfx950", (), (), (), error=f"mha_fwd {REFUSED}")
    assert none.agrees
    assert none.line().endswith("-> none: mha_fwd returned -1: no kernel")
    by_text = {
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
    for text, comparison in by_text.items():
        assert (comparison.agrees, comparison.line()) == (False, f"{FORWARD}: {text}")
    # Compared with only the dispatch, only find, or neither.
    unread = replace(same, selected=(), unread="not understood")
    assert (unread.as_selected, unread.agrees) == (None, True)
    assert unread.line() == f"{FORWARD} -> k 2x4x1"
    assert replace(unread, found=()).agrees is False
    unasked = replace(same, found=(), unasked="not a problem for C")
    assert (unasked.as_found, unasked.agrees) == (None, True)
    assert replace(unasked, unread="not understood").agrees is None
    differing = list(by_text.values())
    values = json.loads(differing[0].to_json())
    assert (values["agrees"], values["launched"], values["problem"]["dtype"]) == (
        *(False, ["l"]),
        "bf16",
    )


def test_an_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a script that must parse the text of an error."""
    library = ["--module", "libmha_fwd", "x.so", "caller", "plan.json", "--runtime", "y.so"]
    for options in ([], ["--json"]):
        assert main([*library, "--problems=absent", *options]) == 2
        out, err = capsys.readouterr()
        assert "a file of problems" in err
        found = json.loads(out)["error"]["findings"][0]["place"] if options else out
        assert found == ("absent" if options else "")
