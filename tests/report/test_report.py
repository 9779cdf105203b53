"""Reports of a small artificial build: JSON, sums, page, and the comparison of two reports."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from qola.report.assemble import make_report
from qola.report.data import Report, ReportError, compare_reports
from qola.report.library import Library
from qola.report.page import render, short_names, slowest
from tests.report.toys import COMPILED, LEFT_OUT, LIBRARY, PLAN

REPORT = make_report(PLAN, [LIBRARY], COMPILED, LEFT_OUT)
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "report.json"


def test_json() -> None:
    """Prevents: programs that read the JSON miss a key, or a key changes its meaning."""
    expected = GOLDEN.read_text("utf-8")
    assert replace(REPORT, qola="0").to_json() == expected, f"is it meant? {GOLDEN}"


def test_json_round_trip() -> None:
    """Prevents: qola compares with other values than the report contains."""
    assert Report.from_json(REPORT.to_json(comparison={}), "it").to_json() == REPORT.to_json()
    without = make_report(None, [LIBRARY])
    assert Report.from_json(without.to_json(), "it").kernels == without.kernels


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("[]", "[], expected an object"),
        ("{}", "no name"),
        ('{"schema": 1}', "schema 1; this qola reads 2"),
        ('{"schema": 2}', "no name"),
        (REPORT.to_json().replace('"vgprs"', '"wgprs"'), ".kernels: no vgprs"),
        (REPORT.to_json().replace('"kernels": [', '"kernels": [{},'), ".kernels: no name"),
        (REPORT.to_json().replace('"name": "fwd_d192"', '"name": []'), ".kernels.name: []"),
        (REPORT.to_json().replace('"name": "fwd_d192"', r'"name": "\ud800"'), ".kernels.name: "),
        ("[" * 100_000, "nested more than"),
        (
            re.sub('"vgprs": [0-9]+', f'"vgprs": {"9" * 21}', REPORT.to_json()),
            "not the JSON of a report: a number of 21 digits",
        ),
    ],
)
def test_invalid_report(text: str, found: str) -> None:
    """Prevents: a wrong file causes a traceback, or qola compares with an incomplete report."""
    with pytest.raises(ReportError, match=re.escape(found)) as raised:
        Report.from_json(text, "old.json")
    assert raised.value.findings[0].place == "old.json"
    assert "qola report" in raised.value.findings[0].fix


def test_names_follow_the_order_of_the_batch() -> None:
    """Prevents: kernels get names in the order of the plan instead of the batch."""
    assert [(kernel.name, kernel.symbol) for kernel in REPORT.kernels[:3]] == [
        ("fwd_d128_nmask", "nmask"),
        ("fwd_d128_mask", "mask"),
        ("fwd_d192", "d192"),
    ]
    assert [kernel.name for kernel in REPORT.kernels[3:]] == ["splitkv_d128"] * 4


def test_ambiguous_kernels_have_no_name() -> None:
    """Prevents: qola guesses names if instances of a batch have different numbers of kernels."""
    ((batch, (found,)), *others) = LIBRARY.units.items()
    three = replace(found, kernels={**found.kernels, "third": found.kernels["mask"]})
    library = replace(LIBRARY, units={batch: (three,), **dict(others)})
    kernels = make_report(PLAN, [library]).kernels[:3]
    assert [(k.name, k.batch, k.role) for k in kernels] == [("", "fwd_bf16_2_abc", "fwd")] * 3


def test_library_of_another_plan() -> None:
    """Prevents: numbers are reported under the names of other kernels."""
    (unit, *_) = LIBRARY.units.values()
    with pytest.raises(ReportError, match="the id 123abc, which the plan of small does not"):
        make_report(PLAN, [replace(LIBRARY, units={"123abc": unit})])
    with pytest.raises(ReportError, match=r"no library of ns_libmha_fwd\.so"):
        make_report(PLAN, [replace(LIBRARY, file="other.so")])


def test_report_without_a_plan() -> None:
    """Prevents: a report without a plan invents names or counts."""
    report = make_report(None, [LIBRARY])
    assert {kernel.name for kernel in report.kernels} == {""}
    assert {batch.instances for batch in report.batches} == {None}
    assert {batch.name for batch in report.batches} == set(LIBRARY.units)
    assert report.assembly[0].key == "sha256 a5"
    assert report.left_out is None
    assert "Build of ns_libmha_fwd.so" in render(report)


def test_slowest_compiles_come_first() -> None:
    """Prevents: the list of slow compiles begins with fast compiles."""
    assert [batch.name for batch in slowest(REPORT)] == ["fwd_bf16_2_abc", "splitkv_d128"]


def test_changes_between_reports() -> None:
    """Prevents: a slower kernel is not reported, or an existing kernel counts as new."""
    kernels = [replace(k, vgprs=k.vgprs + (k.symbol == "odd_gfx950")) for k in REPORT.kernels[:-1]]
    kernels += [replace(REPORT.kernels[-1], waves=None), replace(REPORT.kernels[0], name="new")]
    found = compare_reports(REPORT, replace(REPORT, kernels=tuple(kernels[1:]), timed=False))
    change = {"name": "splitkv_d128", "arch": "gfx950", "what": "waves", "before": 4, "after": None}
    assert found == {
        "name": "small",
        "added": ["new, gfx950"],
        "removed": ["fwd_d128_nmask, gfx950"],
        "changes": [change],
    }


@pytest.mark.parametrize("before", [REPORT, make_report(None, [LIBRARY])])
def test_equal_builds_have_no_changes(before: Report) -> None:
    """Prevents: all kernels count as removed and added if only one report has names."""
    found = compare_reports(before, REPORT)
    assert (found["added"], found["removed"], found["changes"]) == ([], [], [])


def test_short_names_are_unique() -> None:
    """Prevents: names have 150 characters, or two kernels have equal short names."""
    tile = "b128x64x32x128x16x128_r4x1x1_w32x32x16"
    kernel_fields: list[dict[str, str | int | bool]] = [
        {"tile": tile, "mask": False, "dpad": 0, "bias": "no", "lse": True},
        {"tile": tile, "mask": True, "dpad": 0, "bias": "no", "lse": True},
        {"tile": tile, "mask": True, "dpad": 8, "bias": "alibi", "lse": True},
        {"tile": tile.replace("r4", "r2"), "mask": True, "dpad": 0, "bias": "no", "lse": True},
    ]
    kernels = [
        replace(REPORT.kernels[0], name=f"k{n}", fields=fields)
        for n, fields in enumerate(kernel_fields)
    ]
    shape = "b128x64x32x128x16x128"
    assert short_names(kernels) == {
        "k0": f"{shape} r4x1x1_w32x32x16",
        "k1": f"{shape} r4x1x1_w32x32x16 mask",
        "k2": f"{shape} r4x1x1_w32x32x16 alibi mask",
        "k3": f"{shape} r2x1x1_w32x32x16 mask",
    }
    other = replace(kernels[0], name="group", mode="group")
    assert short_names([kernels[0], other]) == {"k0": shape, "group": shape}
    assert short_names([replace(REPORT.kernels[0], fields={})]) == {"fwd_d128_nmask": "fwd"}


def test_head_has_date_compiler_and_command() -> None:
    """Prevents: pages of different builds look alike."""
    date, command = "2026-01-31T12:00:00Z", "qola report out -m small.toml -o <new>.html"
    page = render(make_report(PLAN, [LIBRARY], date=date, command=command))
    head = page[: page.index("<main>")]
    for text in ("2026-01-31 12:00:00 UTC", "AMD clang version 19.0.0", "small, in canonical form"):
        assert text in head
    assert "<code>qola report out -m small.toml -o &lt;new&gt;.html</code>" in head
    assert "Date" not in render(REPORT)


def test_columns_without_content_are_left_out() -> None:
    """Prevents: the page shows columns of seconds and sources without a log."""
    for report, shown in ((REPORT, True), (make_report(PLAN, [LIBRARY]), False)):
        page = render(report)
        for table in ("batches", "kernels"):
            (head,) = re.findall(rf'id="{table}-table".*?<thead>(.*?)</thead>', page, re.DOTALL)
            assert (">seconds<" in head, ">from<" in head) == (shown, shown), table
            assert "VGPR spills" in head or table != "kernels", "a zero is content"


class Tags(HTMLParser):
    """Records the open tags, and all tags, of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        """Record an opened tag."""
        self.seen.append(tag)
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Record a closed tag."""
        assert self.open.pop() == tag


def test_page_is_well_formed_and_escaped() -> None:
    """Prevents: a page contains markup from manifests or kernel names, or unclosed tags."""
    library: Library = replace(LIBRARY, file="<script>alert(1)</script>.so")
    kernels = (replace(REPORT.kernels[0], name="<i>"), *REPORT.kernels[1:])
    libraries = make_report(None, [library]).libraries
    hostile = replace(REPORT, name="<i>", libraries=libraries, kernels=kernels)
    page = render(hostile)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen.count("script") == 1
    assert not {"b", "i"} & set(tags.seen)
    assert "&lt;b&gt;this&lt;/b&gt;" in page
    for table in ("slowest", "kernels", "left-out"):
        assert f'id="{table}-table"' in page
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_unreachable_kernels_come_first() -> None:
    """Prevents: unreachable kernels are hidden below hundreds of other rules."""
    page = render(REPORT)
    assert page.index("unreachable: a bucket") < page.index("no variant has this hdim")
    assert "43 kernel instances of the receipts" in page
