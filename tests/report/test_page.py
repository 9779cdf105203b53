"""The page of a report, as a browser shows it: of a real library, with a log of its compiles."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from qola.cli.command_line import main
from qola.health.compare import compare_trees
from qola.health.data import HealthReport, KernelHealth, KernelVerdict, TreeHealth
from qola.health.page import render as render_health
from qola.plan.model import Plan
from qola.report.data import Report
from qola.report.page import render
from tests.report.browser import start_browser

LIBRARIES = [os.path.abspath(path) for path in os.environ["QOLA_TEST_LIBRARIES"].split()]
PLAN = Path(os.environ["QOLA_TEST_PLAN"]).absolute()
CHROMIUM = Path(os.environ["QOLA_TEST_CHROMIUM"]).absolute().parent
SCRIPT = Path(os.environ["QOLA_TEST_UNPACK"]).absolute()
BUILDERS = "constants and data"
DATE = "2026-01-31"
A4_LANDSCAPE = 1032
"""Width in CSS's pixels between the margins of page.css: 273 mm at 96 to the inch."""


def log_of(plan: Plan) -> str:
    """An execution log of a build: every third compile from the disk cache."""
    names = [batch.name for batch in plan.batches]
    entries = [
        {
            "commandArgs": ["clang++"],
            "mnemonic": "QolaCompile",
            # 9.1, 9.5, 9.25, 9.125: texts, and numbers behind the point, are in another order.
            "metrics": {
                "totalTime": f"9.{5**number}s",
                "startTime": f"{DATE}T10:11:1{number % 9}Z",
            },
            "runner": "linux-sandbox" if number % 3 else "disk cache hit",
            "listedOutputs": [f"bazel-out/cfg/bin/external/qola_compile~/{name}.pic.o"],
        }
        for number, name in enumerate(names)
    ]
    return "".join(json.dumps(entry, indent=2) for entry in entries) + "\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that compares a build with an earlier one of less."""
    directory = tmp_path_factory.mktemp("report")
    plan = Plan.from_json(PLAN.read_text("utf-8"))
    (directory / "log.json").write_text(log_of(plan), "utf-8")
    words = ["report", "--plan", str(PLAN), "--output"]
    assert main([*words, "old.html", LIBRARIES[0]], {}, directory=directory) == 0
    words += ["new.html", "--execution-log", "log.json", "--compare", "old.json"]
    assert main([*words, *LIBRARIES], {}, directory=directory) == 0
    return directory / "new.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = ("chromium.br", "al2023.tar.br", "fonts.tar.br")
    archives = [CHROMIUM / name for name in names]
    with start_browser(SCRIPT, archives, tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report on a new page; its console must stay empty."""
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(report.as_uri())
    yield opened
    opened.close()
    assert complaints == []


def shades(png: bytes) -> int:
    """Count the different bytes of the pixels: few in an empty picture, most in text."""
    data = b"".join(re.findall(rb"IDAT(.*?).{4}.{4}(?=IDAT|IEND)", png, re.DOTALL))
    return len(set(zlib.decompressobj().decompress(data)))


def column(page: Page, table: str, name: str) -> tuple[str, list[str]]:
    """Return an expression for the head of a column, and the values of its cells."""
    head = (
        f"[...document.querySelectorAll('#{table} thead th')].find(h => h.textContent == '{name}')"
    )
    found: list[str] = page.evaluate(
        f"(h => [...document.querySelectorAll('#{table} tbody tr')].map(r => r.cells[h.cellIndex])"
        f".map(c => c.dataset.value ?? c.textContent))({head})"
    )
    return head, found


def test_the_page_is_visible(page: Page) -> None:
    """Prevents: a page that stays empty, and a check that would not notice."""
    light = page.screenshot()
    page.emulate_media(color_scheme="dark")
    dark = page.screenshot()
    assert shades(light) > 100
    assert shades(dark) > 100
    assert dark != light, "one for light and dark"
    page.goto("about:blank")
    assert shades(page.screenshot()) < 10


def test_the_page_loads_nothing_else(page: Page, report: Path) -> None:
    """Prevents: an error in the console, or a font, script or style from elsewhere."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.reload()
    page.evaluate("document.querySelectorAll('thead button').forEach(b => b.click())")
    assert requests == [report.as_uri()]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        *(("kernels-table", "VGPRs"), ("kernels-table", "code"), ("batches-table", "seconds")),
        *(("slowest-table", "seconds"), ("libraries-table", "bytes")),
    ],
)
def test_numbers_are_sorted_as_numbers(page: Page, table: str, name: str) -> None:
    """Prevents: 9 behind 10, a click that does nothing, rows that are lost."""
    head, before = column(page, table, name)
    assert len(set(before)) > 1
    for order, down in (("ascending", False), ("descending", True)):
        page.evaluate(f"{head}.querySelector('button').click()")
        _, after = column(page, table, name)
        assert list(map(float, after)) == sorted(map(float, before), reverse=down)
        assert page.evaluate(f"{head}.getAttribute('aria-sort')") == order
    assert page.evaluate(f"document.querySelectorAll('#{table} [aria-sort]').length") == 1


def test_the_keyboard_sorts_too(page: Page) -> None:
    """Prevents: heads that only a mouse can press."""
    head, before = column(page, "kernels-table", "kernel instance")
    page.evaluate(f"{head}.querySelector('button').focus()")
    page.keyboard.press("Enter")
    _, after = column(page, "kernels-table", "kernel instance")
    assert after != before
    assert sorted(after) == sorted(before)
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"


def test_a_filter_finds_rows(page: Page) -> None:
    """Prevents: a field that hides what it should find, or nothing."""
    page.evaluate("document.querySelector('input[data-table=kernels-table]').focus()")
    page.keyboard.insert_text("GFX950 dq_dk")
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    shown = page.evaluate(f"{rows}.filter(r => r.checkVisibility()).map(r => r.innerText)")
    assert len(shown) == 7
    assert all("gfx950" in text and "dq_dk_dv" in text for text in shown)
    assert page.evaluate("document.querySelectorAll('.filter output')[1].textContent") == "7 of 34"


def test_of_many_rows_the_first_are_shown(page: Page, report: Path) -> None:
    """Prevents: a page of thousands of kernels that a browser lays out anew at each click."""
    data = Report.from_json(report.with_suffix(".json").read_text("utf-8"), "it")
    many = report.with_name("many.html")
    many.write_text(render(replace(data, kernels=data.kernels * 10)), "utf-8")
    page.goto(many.as_uri())
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    seen = f"{rows}.filter(r => r.checkVisibility()).length"
    head, _ = column(page, "kernels-table", "VGPRs")
    assert page.evaluate(seen) == 200
    page.evaluate(f"{head}.querySelector('button').click()")
    assert page.evaluate(seen) == 200
    assert page.evaluate(f"{rows}.slice(0, 200).every(r => r.checkVisibility())"), "the first"
    said = "document.querySelectorAll('.filter output')[1].textContent"
    assert page.evaluate(said) == "340 of 340, 200 shown"
    page.emulate_media(media="print")
    assert page.evaluate(seen) == 340
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('.filter button')[1].click()")
    assert (page.evaluate(seen), page.evaluate(said)) == (340, "340 of 340")


def test_screen_readers_get_names(page: Page) -> None:
    """Prevents: fields, tables and buttons that a screen reader has no name for."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in ("table", "button", "searchbox", "columnheader", "rowheader", "region", "heading"):
        assert len(named[role]) > 1, role
        assert all(named[role]), role
    assert page.evaluate("document.documentElement.lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)


def test_it_prints_well(page: Page) -> None:
    """Prevents: columns beyond the paper's edge, a dark page, controls that nobody can press."""
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": A4_LANDSCAPE, "height": 700})
    right = "[...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().right)"
    assert max(page.evaluate(right)) <= A4_LANDSCAPE
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert page.evaluate(style.format("body", "backgroundColor")) == "rgb(255, 255, 255)"
    assert page.evaluate(style.format("nav", "display")) == "none"
    assert page.evaluate(style.format(".filter", "display")) == "none"
    assert page.evaluate(style.format("thead", "display")) == "table-header-group"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('tbody details:not([open])').length") == 0
    assert max(page.evaluate(right)) <= A4_LANDSCAPE
    assert len(page.pdf(prefer_css_page_size=True)) > 40_000


@pytest.mark.parametrize("width", [1280, 420])
def test_what_matters_is_seen_without_scrolling(page: Page, width: int) -> None:
    """Prevents: spills, scratch, LDS and waves beyond the edge, and a page wider than a screen."""
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    for name in ("kernel instance", "waves", "VGPR spills", "SGPR spills", "scratch", "LDS"):
        head, values = column(page, "kernels-table", name)
        cells = f"{rows}.map(r => r.cells[{head}.cellIndex])"
        edges = page.evaluate(
            f"{cells}.filter(c => c.checkVisibility()).map(c => c.getBoundingClientRect())"
            ".map(box => [box.left, box.right])"
        )
        assert all(values)
        assert len(edges) == len(values) == 34
        assert all(0 <= left < right - 10 for left, right in edges), name
        assert max(right for _, right in edges) <= width, name
        if width < 800:
            # No head is above a card's values.
            label = page.evaluate(f"getComputedStyle({cells}[0], '::before').content")
            assert label == ("none" if name == "kernel instance" else f'"{name}"')


def test_names_are_short_and_unfold(page: Page) -> None:
    """Prevents: names of four lines, and short ones of which nobody learns the whole."""
    page.set_viewport_size({"width": 1280, "height": 1000})
    names = "[...document.querySelectorAll('#kernels-table summary')]"
    line = "parseFloat(getComputedStyle(n).lineHeight)"
    lines = page.evaluate(f"{names}.map(n => n.clientHeight / {line})")
    assert len(lines) == 34
    assert max(lines) < 2.5
    row = "document.querySelector('#kernels-table tbody th')"
    whole = [kernel.name for kernel in Plan.from_json(PLAN.read_text("utf-8")).kernels]
    assert not any(name in page.evaluate(f"{row}.innerText") for name in whole)
    page.evaluate(f"{row}.querySelector('summary').click()")
    assert page.evaluate(f"{row}.innerText").splitlines()[1] in whole
    assert page.evaluate(f"{row}.getBoundingClientRect().width") < 400


def test_the_head_has_date_compiler_manifest_and_command(page: Page) -> None:
    """Prevents: a page that does not say which build it is of."""
    rows = "[...document.querySelectorAll('.details dt')]"
    found = dict(page.evaluate(f"{rows}.map(t => [t.textContent, t.nextSibling.textContent])"))
    assert found["Date"] == f"{DATE} 10:11:10 UTC"
    assert re.search(r"clang version \d+\.", found["Compiler"])
    assert '"namespace": "ci"' in found["Manifest"]
    assert found["Command"].startswith("qola report --plan ")
    assert "--compare old.json" in found["Command"]


def test_every_byte_of_a_library_has_a_part(report: Path) -> None:
    """Prevents: two thirds of a library that the page does not explain."""
    for library in json.loads(report.with_suffix(".json").read_text("utf-8"))["libraries"]:
        parts = {part["what"]: part["bytes"] for part in library["parts"]}
        assert sum(parts.values()) == library["bytes"]
        assert library["device_bytes"] > 2 * parts["device code"], "not compressed"
        assert parts["headers and padding"] < library["bytes"] / 10
        assert min(parts[what] for what in ("host code", "unwind tables", BUILDERS)) > 10_000


def test_the_page_of_health(browser: Browser, tmp_path: Path) -> None:
    """Prevents: a page of kernel health wider than the screen, or whose rows do not sort."""
    kernel = KernelHealth(
        "hsa/gfx950/a.co", "gfx950", "1", "a", 9, 64, 0, 8, 0, 0, 0, 0, 256, 8, ""
    )
    wrong = KernelVerdict("failed", 1, 2.0, ("o[0] is 1 in place of 2",))
    faulty = replace(kernel, key=f"hsa/gfx950/{'long_name_' * 20}.co", sha256="2", vgprs=128)
    before = TreeHealth("before", "1", (), (kernel, faulty))
    after = TreeHealth("after", "2", (), (kernel, replace(faulty, sha256="3", verdict=wrong)))
    file = tmp_path / "health.html"
    trees = (before, after)
    file.write_text(render_health(HealthReport(trees, compare_trees(trees))), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 400, "height": 800})
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto(file.as_uri())
    assert shades(opened.screenshot()) > 100
    assert opened.evaluate("document.documentElement.scrollWidth") <= 400
    opened.set_viewport_size({"width": 1400, "height": 1000})
    head, numbers = column(opened, "kernels-table", "VGPRs")
    assert numbers == ["64", "128"]
    for _ in range(2):
        opened.evaluate(f"{head}.querySelector('button').click()")
    assert column(opened, "kernels-table", "VGPRs")[1] == ["128", "64"]
    _, kinds = column(opened, "differences-table", "difference")
    assert kinds == ["fails now"]
    opened.close()
    assert complaints == []
