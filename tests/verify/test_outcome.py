"""Outcomes: what counts as passed, and what is written of it."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from qola.attention import from_fields
from qola.verify.outcome import Outcome, Trial, count, lines, to_json, to_junit
from tests.verify.toys import PASSED, PROBLEM, RIGHT, TRIAL, WRONG


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (replace(TRIAL, verdicts=(RIGHT, WRONG)), "o[0, 1, 0, 2] is nan in place of 1"),
        (replace(TRIAL, findings=("reads 4 bytes beyond K",)), "beyond K"),
        (replace(TRIAL, error="v_foo is not known"), "v_foo"),
        (replace(TRIAL, launched=("other",)), "launched other"),
        (replace(TRIAL, launched=()), "launched nothing"),
        (replace(TRIAL, verdicts=()), "nothing was compared"),
        (replace(TRIAL, verdicts=(replace(RIGHT, compared=0),)), "nothing was compared"),
    ],
    ids=["verdict", "finding", "error", "another kernel", "no kernel", "no verdict", "no element"],
)
def test_what_fails_a_kernel(trial: Trial, said: str) -> None:
    """Prevents: a kernel that passes because nothing, or something else, was looked at."""
    outcome = replace(PASSED, trials=(TRIAL, trial))
    assert outcome.state == "failed"
    (fault,) = outcome.faults()
    assert said in fault
    assert str(PROBLEM) in fault
    (failure,) = ElementTree.fromstring(to_junit([outcome], "m")).iter("failure")
    assert said in str(failure.text)
    assert any(said in line for line in lines([outcome]))


def test_a_kernel_without_trials_has_not_passed() -> None:
    """Prevents: kernels left out in silence."""
    untried = Outcome("k2", "gfx942", (), "unreachable: all that it could take goes to k")
    assert PASSED.state == "passed"
    assert count([PASSED, untried]) == {"passed": 1, "failed": 0, "untried": 1}
    suite = ElementTree.fromstring(to_junit([PASSED, untried], "m"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    text = "\n".join(lines([PASSED, untried]))
    assert "untried: k2 (gfx942): unreachable" in text
    assert text.endswith("1 passed, 0 failed, 1 untried; 2 problems")


def test_json_has_all_of_it() -> None:
    """Prevents: a problem that cannot be run again, and numbers that are not JSON."""
    failed = replace(PASSED, kernel="bad", trials=(replace(TRIAL, verdicts=(WRONG,)),))
    text = to_json([PASSED, failed])
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["counts"] == {"passed": 0 + 1, "failed": 1, "untried": 0}
    (trial,) = found["kernels"][1]["trials"]
    assert from_fields(trial["problem"]) == PROBLEM
    assert trial["verdicts"][0]["share"] == "inf"
    assert len([line for line in text.splitlines() if '"kernel":' in line]) == 2
    assert json.loads(to_json([]))["kernels"] == []
