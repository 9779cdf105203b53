"""The HTML page: state of each kernel, and no external resources."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

from qola_lab.tests.verify.toys import COVERED, PASSED, TRIAL, WRONG
from qola_lab.verify.outcome import KernelFault, Outcome
from qola_lab.verify.page import render


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
