"""The page for people: what it says of kernels, and that it stands alone."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from qola.verify.outcome import Outcome
from qola.verify.page import render
from tests.verify.toys import PASSED, TRIAL, WRONG

_VOID = ("meta", "input")


class Page(HTMLParser):
    """The tags of a page, and the cells of each of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.titles: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag that opens."""
        self.tags.append(tag)
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(str(dict(attrs)["id"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """Take a tag that closes."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Take a text."""
        if {"td", "th"} & set(self.open):
            self._rows[-1][-1] += data
        elif self.open and self.open[-1] == "h2":
            self.titles.append(data)


def outcomes() -> list[Outcome]:
    """One kernel of each state."""
    right = replace(TRIAL, launched=("<bad>",))
    wrong = replace(right, verdicts=(WRONG,), findings=("reads beyond K & <V>",))
    untried = Outcome("k3", "gfx942", (), "K and V in pages: problems have none")
    return [PASSED, Outcome("<bad>", "gfx950", (right, wrong)), untried]


def test_it_says_what_became_of_each_kernel() -> None:
    """Prevents: a fault, a kernel that was not tried, or a limit that a reader does not see."""
    page = Page(render("te", ["gfx950", ""], outcomes()))
    assert page.open == []
    assert page.titles == [
        *("Failed", "Kernels", "Problems", "Limits of emulation"),
    ]
    failed = page.tables["failed-table"][1:]
    assert [row[0] for row in failed] == ["<bad>", "<bad>"]
    assert "o[0, 1, 0, 2] is nan in place of 1" in failed[0][3]
    assert failed[1][3] == "reads beyond K & <V>"
    assert page.tables["kernels-table"] == [
        [
            *("kernel", "arch", "state", "problems", "elements", "largest error", "faults"),
            "missing problems",
        ],
        ["k", "gfx950", "passed", "2", "1\u202f280", "0.50", "0", ""],
        ["<bad>", "gfx950", "failed", "2", "1\u202f280", "infinite", "2", ""],
        ["k3", "gfx942", "untried", "0", "0", "", "0", "K and V in pages: problems have none"],
    ]
    problems = page.tables["problems-table"][1:]
    assert [(row[3], row[6]) for row in problems] == [("o 0.50", "0")] * 3 + [("o infinite", "2")]


def test_it_stands_alone_and_is_the_same_again() -> None:
    """Prevents: a script or style from elsewhere, markup of a kernel's name, a promise of a GPU."""
    text = render("te", ["gfx950"], outcomes())
    assert text == render("te", ["gfx950"], outcomes())
    assert Page(text).tags.count("script") == 1
    assert not {"bad", "link", "img"} & set(Page(text).tags)
    assert "http" not in text.replace("http-equiv", "")
    assert "not on a GPU" in text
    assert "failed-table" not in render("te", [], [PASSED])
