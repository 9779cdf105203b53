"""Outcomes: which trials pass, and how they are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gfxemu.coverage import BlockSize
from qola_lab.problems import from_fields
from qola_lab.tests.verify.toys import COVERED, PASSED, PROBLEM, RIGHT, TRIAL, WRONG
from qola_lab.verify.outcome import KernelFault, Outcome, Trial, count, lines, to_json, to_junit


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (replace(TRIAL, verdicts=(RIGHT, WRONG)), "o[0, 1, 0, 2] is nan in place of 1"),
        (
            replace(TRIAL, findings=(KernelFault(("k",), "kind", "reads 4 bytes beyond K"),)),
            "beyond K",
        ),
        (replace(TRIAL, error="v_foo is not known"), "v_foo"),
        (replace(TRIAL, launched=("other",)), "launched other"),
        (replace(TRIAL, launched=()), "launched nothing"),
        (replace(TRIAL, verdicts=()), "nothing was compared"),
        (replace(TRIAL, verdicts=(replace(RIGHT, compared=0),)), "nothing was compared"),
    ],
    ids=["verdict", "finding", "error", "another kernel", "no kernel", "no verdict", "no element"],
)
def test_faults_fail_a_kernel(trial: Trial, message: str) -> None:
    """Prevents: a kernel that passes although results were wrong, missing or another kernel's."""
    outcome = replace(PASSED, trials=(TRIAL, trial))
    assert outcome.state == "failed"
    (fault,) = outcome.faults()
    assert message in fault
    assert str(PROBLEM) in fault
    (failure,) = ElementTree.fromstring(to_junit([outcome], "m")).iter("failure")
    assert message in str(failure.text)
    assert any(message in line for line in lines([outcome]))


def test_a_kernel_without_trials_has_not_passed() -> None:
    """Prevents: kernels silently left out of the report."""
    untried = Outcome("k2", "gfx942", (), "unreachable: all that it could take goes to k")
    assert PASSED.state == "passed"
    assert count([PASSED, untried]) == {"passed": 1, "failed": 0, "untried": 1}
    suite = ElementTree.fromstring(to_junit([PASSED, untried], "m"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    text = "\n".join(lines([PASSED, untried]))
    assert "untried: k2 (gfx942): unreachable" in text
    assert text.endswith("1 passed, 0 failed, 1 untried; 2 problems")


def test_code_that_did_not_run_is_named() -> None:
    """Prevents: a kernel that passed, of which nobody knows that a loop never ran."""
    text = "\n".join(lines([replace(PASSED, coverage=COVERED), PASSED]))
    counts = "8 of 10 instructions, 0 of 1 barriers, 1 of 1 waits"
    assert f"not all code ran: k (gfx950): {counts}; not +0x10 to +0x18" in text
    assert text.endswith(f"4 problems; {counts} executed")
    # Two runs: what either executed. The digest is that of the requested problems.
    other = replace(COVERED, missing=(BlockSize(0, 16, 4, 0, 1),))
    first, second = (
        replace(PASSED, coverage=one, digest=d) for one, d in ((COVERED, "a"), (other, "b"))
    )
    whole = first.extended(second)
    assert whole.coverage is not None
    assert (whole.coverage.missing, whole.digest, len(whole.trials)) == ((), "a", 4)
    assert "not all code ran" not in "\n".join(lines([whole]))
    (kernel,) = json.loads(to_json([first]))["kernels"]
    assert kernel["coverage"] == {
        **{"instructions": [8, 10], "barriers": [0, 1], "waits": [1, 1]},
        "not_executed": [[16, 24]],
    }


def test_json_has_problems_and_verdicts() -> None:
    """Prevents: JSON without the failing problem, or with numbers that JSON does not allow."""
    failed = replace(PASSED, kernel="bad", trials=(replace(TRIAL, verdicts=(WRONG,)),))
    text = to_json([PASSED, failed])
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["counts"] == {"passed": 0 + 1, "failed": 1, "untried": 0}
    (trial,) = found["kernels"][1]["trials"]
    assert from_fields(trial["problem"]) == PROBLEM
    assert trial["verdicts"][0]["share"] == "inf"
    assert len([line for line in text.splitlines() if '"kernel":' in line]) == 2
    assert json.loads(to_json([]))["kernels"] == []
