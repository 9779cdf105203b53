"""The page of a report in a browser: of built libraries, with a log of their compiles."""

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
from qola.plan.model import Plan
from qola.report.data import Report
from qola.report.page import render
from qola_lab.trees.report import (
    HealthReport,
    KernelHealth,
    KernelVerdict,
    TreeHealth,
    compare_trees,
)
from qola_lab.trees.report import render as render_health
from tests.report.browser import start_browser

LIBRARIES = [os.path.abspath(path) for path in os.environ["QOLA_TEST_LIBRARIES"].split()]
PLAN = Path(os.environ["QOLA_TEST_PLAN"]).absolute()
CHROMIUM = Path(os.environ["QOLA_TEST_CHROMIUM"]).absolute().parent
SCRIPT = Path(os.environ["QOLA_TEST_UNPACK"]).absolute()
BUILDERS = "constants and data"
DATE = "2026-01-31"
A4_LANDSCAPE = 1032
"""Width between the margins of page.css, in CSS pixels: 273 mm at 96 pixels per inch."""


def make_log(plan: Plan) -> str:
    """Return an execution log of a build: every third compile is a hit of the disk cache."""
    names = [batch.name for unit in plan.units for batch in unit.batches]
    entries = [
        {
            "commandArgs": ["clang++"],
            "mnemonic": "QolaCompile",
            # 9.1, 9.5, 9.25, 9.125: sorting as text or by the digits after the point differs.
            "metrics": {
                "totalTime": f"9.{5**number}s",
                "startTime": f"{DATE}T10:11:1{number % 9}Z",
            },
            "runner": "linux-sandbox" if number % 3 else "disk cache hit",
            "listedOutputs": [f"bazel-out/cfg/bin/external/rules_hip~/kernels/{name}.pic.o"],
        }
        for number, name in enumerate(names)
    ]
    return "".join(json.dumps(entry, indent=2) for entry in entries) + "\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page that compares a build with an earlier, smaller build."""
    directory = tmp_path_factory.mktemp("report")
    plan = Plan.from_json(PLAN.read_text("utf-8"))
    (directory / "log.json").write_text(make_log(plan), "utf-8")
    arguments = ["report", "--plan", str(PLAN), "--output"]
    assert main([*arguments, "old.html", LIBRARIES[0]], {}, directory=directory) == 0
    arguments += ["new.html", "--execution-log", "log.json", "--compare", "old.json"]
    assert main([*arguments, *LIBRARIES], {}, directory=directory) == 0
    return directory / "new.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = ("chromium.br", "al2023.tar.br", "fonts.tar.br")
    archives = [CHROMIUM / name for name in names]
    with start_browser(SCRIPT, archives, tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report on a new page; its console must remain empty."""
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    messages: list[str] = []
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.goto(report.as_uri())
    yield opened
    opened.close()
    assert messages == []


def shades(png: bytes) -> int:
    """Count the distinct byte values of the pixels: few in an empty picture, many with text."""
    data = b"".join(re.findall(rb"IDAT(.*?).{4}.{4}(?=IDAT|IEND)", png, re.DOTALL))
    return len(set(zlib.decompressobj().decompress(data)))


def column(page: Page, table: str, name: str) -> tuple[str, list[str]]:
    """Return a JavaScript expression for a column's head, and the values of its cells."""
    head = (
        f"[...document.querySelectorAll('#{table} thead th')].find(h => h.textContent == '{name}')"
    )
    values: list[str] = page.evaluate(
        f"(h => [...document.querySelectorAll('#{table} tbody tr')].map(r => r.cells[h.cellIndex])"
        f".map(c => c.dataset.value ?? c.textContent))({head})"
    )
    return head, values


def test_json_of_the_command(report: Path) -> None:
    """Prevents: a report without its date or command, or --compare with builds in wrong order."""
    data = json.loads(report.with_suffix(".json").read_text("utf-8"))
    assert data["date"] == f"{DATE}T10:11:10Z"
    assert data["command"].startswith("qola report --plan ")
    assert "--compare old.json" in data["command"]
    found = data["comparison"]
    assert found["name"]
    assert found["added"]
    assert (found["removed"], found["changes"]) == ([], [])


def test_page_is_visible(page: Page) -> None:
    """Prevents: the page is empty, and the other tests do not detect it."""
    light = page.screenshot()
    page.emulate_media(color_scheme="dark")
    dark = page.screenshot()
    assert shades(light) > 100
    assert shades(dark) > 100
    assert dark != light, "one for light and dark"
    page.goto("about:blank")
    assert shades(page.screenshot()) < 10


def test_page_loads_no_other_files(page: Page, report: Path) -> None:
    """Prevents: console errors, or requests for fonts, scripts or styles from other servers."""
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
    """Prevents: 9 is sorted after 10, only a mouse sorts, or rows disappear."""
    head, before = column(page, table, name)
    assert len(set(before)) > 1
    page.evaluate(f"{head}.querySelector('button').focus()")
    for order, down in (("ascending", False), ("descending", True)):
        page.keyboard.press("Enter")
        _, after = column(page, table, name)
        assert list(map(float, after)) == sorted(map(float, before), reverse=down)
        assert page.evaluate(f"{head}.getAttribute('aria-sort')") == order
    assert page.evaluate(f"document.querySelectorAll('#{table} [aria-sort]').length") == 1


def test_filter_shows_matching_rows(page: Page) -> None:
    """Prevents: a filter hides matching rows, or hides no rows."""
    page.evaluate("document.querySelector('input[data-table=kernels-table]').focus()")
    page.keyboard.insert_text("GFX950 dq_dk")
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    shown = page.evaluate(f"{rows}.filter(r => r.checkVisibility()).map(r => r.innerText)")
    assert len(shown) == 7
    assert all("gfx950" in text and "dq_dk_dv" in text for text in shown)
    assert page.evaluate("document.querySelectorAll('.filter output')[1].textContent") == "7 of 34"


def test_only_first_rows_of_long_tables_are_shown(page: Page, report: Path) -> None:
    """Prevents: a browser lays out thousands of rows again after each click."""
    data = Report.from_json(report.with_suffix(".json").read_text("utf-8"), "it")
    many = report.with_name("many.html")
    many.write_text(render(replace(data, kernels=data.kernels * 10)), "utf-8")
    page.goto(many.as_uri())
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    visible_rows = f"{rows}.filter(r => r.checkVisibility()).length"
    head, _ = column(page, "kernels-table", "VGPRs")
    assert page.evaluate(visible_rows) == 200
    page.evaluate(f"{head}.querySelector('button').click()")
    assert page.evaluate(visible_rows) == 200
    assert page.evaluate(f"{rows}.slice(0, 200).every(r => r.checkVisibility())"), "the first"
    filter_text = "document.querySelectorAll('.filter output')[1].textContent"
    assert page.evaluate(filter_text) == "340 of 340, 200 shown"
    page.emulate_media(media="print")
    assert page.evaluate(visible_rows) == 340
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('.filter button')[1].click()")
    assert (page.evaluate(visible_rows), page.evaluate(filter_text)) == (340, "340 of 340")


def test_screen_readers_get_names(page: Page) -> None:
    """Prevents: screen readers have no names for fields, tables and buttons."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    names_by_role: dict[str, list[str]] = {}
    for node in nodes:
        role = node.get("role", {}).get("value", "")
        names_by_role.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in ("table", "button", "searchbox", "columnheader", "rowheader", "region", "heading"):
        assert len(names_by_role[role]) > 1, role
        assert all(names_by_role[role]), role
    assert page.evaluate("document.documentElement.lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)


def test_printed_page(page: Page) -> None:
    """Prevents: a printed page has cut columns, a dark background, or useless controls."""
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


@pytest.mark.parametrize("width", [1440, 1280, 420, 360])
def test_no_table_is_cut(page: Page, width: int) -> None:
    """Prevents: the last column of a table, or buttons that sort it, are off-screen."""
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tables = "[...document.querySelectorAll('table')]"
    for part in ("thead button", "tbody td, tbody th"):
        edges = page.evaluate(
            f"{tables}.map(t => [t.id, Math.max(...[...t.querySelectorAll('{part}')]"
            ".map(e => e.getBoundingClientRect().right))])"
        )
        assert edges
        assert [(table, right) for table, right in edges if right > width] == []


def test_cards_name_their_values(page: Page) -> None:
    """Prevents: a phone shows spills or waves without their name, or hides a value."""
    page.set_viewport_size({"width": 420, "height": 900})
    rows = "[...document.querySelectorAll('#kernels-table tbody tr')]"
    for name in ("kernel instance", "waves", "VGPR spills", "SGPR spills", "scratch", "LDS"):
        head, values = column(page, "kernels-table", name)
        cells = f"{rows}.map(r => r.cells[{head}.cellIndex]).filter(c => c.checkVisibility())"
        widths = page.evaluate(f"{cells}.map(c => c.getBoundingClientRect().width)")
        assert all(values)
        assert len(widths) == len(values) == 34
        assert min(widths) > 10, name
        label = page.evaluate(f"getComputedStyle({cells}[0], '::before').content")
        assert label == ("none" if name == "kernel instance" else f'"{name}"')


def test_names_are_short_and_unfold(page: Page) -> None:
    """Prevents: names fill four lines, or the full name of a kernel is not available."""
    page.set_viewport_size({"width": 1280, "height": 1000})
    names = "[...document.querySelectorAll('#kernels-table summary')]"
    line = "parseFloat(getComputedStyle(n).lineHeight)"
    lines = page.evaluate(f"{names}.map(n => n.clientHeight / {line})")
    assert len(lines) == 34
    assert max(lines) < 2.5
    row = "document.querySelector('#kernels-table tbody th')"
    full_names = [kernel.name for kernel in Plan.from_json(PLAN.read_text("utf-8")).kernels]
    assert not any(name in page.evaluate(f"{row}.innerText") for name in full_names)
    page.evaluate(f"{row}.querySelector('summary').click()")
    assert page.evaluate(f"{row}.innerText").splitlines()[1] in full_names
    assert page.evaluate(f"{row}.getBoundingClientRect().width") < 400


def test_every_byte_of_a_library_has_a_part(report: Path) -> None:
    """Prevents: the page does not explain two thirds of a library's size."""
    for library in json.loads(report.with_suffix(".json").read_text("utf-8"))["libraries"]:
        parts = {part["what"]: part["bytes"] for part in library["parts"]}
        assert sum(parts.values()) == library["bytes"]
        assert library["device_bytes"] > 2 * parts["device code"], "not compressed"
        assert parts["headers and padding"] < library["bytes"] / 10
        assert min(parts[what] for what in ("host code", "unwind tables", BUILDERS)) > 10_000


def test_page_of_kernel_health(browser: Browser, tmp_path: Path) -> None:
    """Prevents: the page of kernel health is wider than the screen, or does not sort its rows."""
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
    messages: list[str] = []
    opened.on("console", lambda message: messages.append(message.text))
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
    assert messages == []
