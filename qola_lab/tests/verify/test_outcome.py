"""Outcomes: which trials pass, and how they are reported, also as a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest

from gfxemu.coverage import BlockSize
from qola_lab.problems import from_fields
from qola_lab.tests.verify.toys import COVERED, PASSED, PROBLEM, RIGHT, TRIAL, WRONG
from qola_lab.verify.outcome import KernelFault, Outcome, Trial, count, lines, to_json, to_junit
from qola_lab.verify.page import render


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
    (failure,) = ElementTree.fromstring(to_junit([outcome])).iter("failure")
    assert message in str(failure.text)
    assert any(message in line for line in lines([outcome]))


def test_a_kernel_without_trials_has_not_passed() -> None:
    """Prevents: kernels silently left out of the report."""
    untried = Outcome("k2", "gfx942", (), "unreachable: all that it could take goes to k")
    assert PASSED.state == "passed"
    assert count([PASSED, untried]) == {"passed": 1, "failed": 0, "untried": 1}
    suite = ElementTree.fromstring(to_junit([PASSED, untried]))
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


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table, by the table's id."""
    found = {}
    for name, table in re.findall(r'<table[^>]* id="([^"]*)".*?>(.*?)</table>', page, re.DOTALL):
        rows = table.split("<tr")[1:]
        cells = [re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
        found[name] = [[unescape(re.sub("<.*?>", "", text)) for text in row] for row in cells]
    return found


def outcomes() -> list[Outcome]:
    """Return one kernel of each state."""
    right = replace(TRIAL, launched=("<bad>",))
    wrong = replace(
        right,
        verdicts=(WRONG,),
        findings=(KernelFault(("<bad>",), "kind", "reads beyond K & <V>"),),
    )
    untried = Outcome("k3", "gfx942", (), "K and V in pages: problems have none")
    return [replace(PASSED, coverage=COVERED), Outcome("<bad>", "gfx950", (right, wrong)), untried]


def test_the_page_shows_the_state_of_each_kernel() -> None:
    """Prevents: a page without a fault, an untried kernel, or a limit."""
    page = render("te", ["gfx950", ""], outcomes())
    titles = [re.sub("<.*?>", "", title) for title in re.findall("<h2.*?>(.*?)</h2>", page)]
    assert titles == ["Failed", "Kernels", "Problems", "Limits of emulation"]
    found = tables(page)
    failed = found["failed-table"][1:]
    assert [row[0] for row in failed] == ["<bad>"]
    assert "o[0, 1, 0, 2] is nan in place of 1" in failed[0][3]
    assert "reads beyond K & <V> (" in failed[0][3]
    assert found["kernels-table"] == [
        [
            *("kernel", "arch", "state", "problems", "elements", "largest error", "faults"),
            *("code executed", "missing problems"),
        ],
        [
            *("k", "gfx950", "passed", "2", "1\u202f280", "0.50", "0"),
            *("8 of 10 instructions, 0 of 1 barriers, 1 of 1 waits", ""),
        ],
        ["<bad>", "gfx950", "failed", "2", "1\u202f280", "infinite", "2", "", ""],
        ["k3", "gfx942", "untried", "0", "0", "", "0", "", "K and V in pages: problems have none"],
    ]
    problems = found["problems-table"][1:]
    assert [(row[3], row[6]) for row in problems] == [("o 0.50", "0")] * 3 + [("o infinite", "2")]


def test_many_errors_of_a_kernel_are_one_row() -> None:
    """Prevents: 71 errors of a kernel fill the page, and hide the next kernel."""
    findings = tuple(
        KernelFault(("<bad>",), f"read {n}", f"reads {n} bytes beyond K") for n in range(71)
    )
    wrong = replace(TRIAL, launched=("<bad>",), findings=findings)
    found = tables(render("te", [], [Outcome("<bad>", "gfx950", (wrong,)), PASSED]))
    ((_, _, _, error),) = found["failed-table"][1:]
    assert error.startswith("reads 0 bytes beyond K")
    assert "70 more" in error
    assert "reads 70 bytes beyond K" in error


def test_the_page_is_self_contained_and_deterministic() -> None:
    """Prevents: external scripts or styles, unescaped kernel names, or a claim of a GPU run."""
    text = render("te", ["gfx950"], outcomes())
    assert text == render("te", ["gfx950"], outcomes())
    assert text.count("<script") == 1
    assert not re.search("<(bad|link|img)", text)
    assert "http" not in text.replace("http-equiv", "")
    assert "not on a GPU" in text
    assert "failed-table" not in render("te", [], [PASSED])
