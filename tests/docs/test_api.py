"""docs/reference/api.md: it says what the docstrings of the rules say."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tools.docs.api import render
from tools.docs.cli import UPDATE
from tools.docs.stardoc_output import read_module

ROOT = Path(__file__).resolve().parents[2]
DEFS = read_module(Path(os.environ["QOLA_TEST_DEFS"]).read_bytes())
EXTENSIONS = read_module(Path(os.environ["QOLA_TEST_EXTENSIONS"]).read_bytes())


def test_the_page_is_up_to_date() -> None:
    """Prevents: a rule, tag or attribute added, changed or removed without its documentation."""
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert render(DEFS, EXTENSIONS) == page, f"run: {UPDATE}"


def test_everything_public_is_there() -> None:
    """Prevents: an extract that drops symbols, so that the page is up to date and not complete."""
    page = render(DEFS, EXTENSIONS)
    public = re.findall(r"^(\w+) = _\1$", (ROOT / "rules/defs.bzl").read_text(), re.M)
    assert len(public) > 10
    sections = re.findall(r"^### (\S+)$", page, re.M)
    tags = re.findall(r'^        "(\w+)": _\1,$', (ROOT / "rules/extensions.bzl").read_text(), re.M)
    assert sorted(sections) == sorted([*public, *(f"qola.{tag}" for tag in tags)])
    # The rows of one, by hand.
    wheel = page.partition("### qola_wheel\n")[2].partition("### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", wheel, re.M)
    assert ("platform", "string") in rows
    assert ("external_libraries", "string list") in rows
    assert "| `bundle` | label | required |" in wheel


@pytest.mark.parametrize("place", ["rule", "attribute"])
def test_a_change_shows(place: str) -> None:
    """Prevents: a diff test that passes whatever the docstrings say; undocumented attributes."""
    defs: dict[str, Any] = copy.deepcopy(DEFS)
    (wheel,) = (rule for rule in defs["rule_info"] if rule["rule_name"] == "qola_wheel")
    (row,) = (row for row in wheel["attribute"] if row["name"] == "bundle")
    (wheel if place == "rule" else row)["doc_string"] = "Something <else> and `<code>`."
    page = render(defs, EXTENSIONS)
    assert page != render(DEFS, EXTENSIONS)
    assert r"Something \<else> and `<code>`." in page
    (wheel if place == "rule" else row)["doc_string"] = ""
    with pytest.raises(ValueError, match="qola_wheel"):
        render(defs, EXTENSIONS)
