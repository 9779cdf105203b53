"""docs/reference/api.md contains the docstrings of all public rules."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tools.docs.api import render
from tools.docs.cli import UPDATE
from tools.docs.stardoc_output import read_module

ROOT = Path(__file__).resolve().parents[2]
DEFS = read_module(Path(os.environ["QOLA_TEST_DEFS"]).read_bytes())
EXTENSIONS = read_module(Path(os.environ["QOLA_TEST_EXTENSIONS"]).read_bytes())
HIP_DEFS = read_module(Path(os.environ["QOLA_TEST_HIP_DEFS"]).read_bytes())
HIP_EXTENSIONS = read_module(Path(os.environ["QOLA_TEST_HIP_EXTENSIONS"]).read_bytes())


def test_page_is_up_to_date() -> None:
    """Prevents: a rule, tag or attribute added, changed or removed without its documentation."""
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert render(DEFS, EXTENSIONS, HIP_DEFS, HIP_EXTENSIONS) == page, f"run: {UPDATE}"


def test_page_contains_all_public_symbols() -> None:
    """Prevents: an up-to-date page that is incomplete because the extraction drops symbols."""
    page = render(DEFS, EXTENSIONS, HIP_DEFS, HIP_EXTENSIONS)
    files = ("rules/defs.bzl", "rules_hip/hip/defs.bzl")
    text = "".join((ROOT / file).read_text() for file in files)
    public = re.findall(r"^(\w+) = _\1$", text, re.M)
    assert len(public) > 10
    sections = re.findall(r"^### (\S+)$", page, re.M)
    tags = re.findall(r'^        "(\w+)": _\1,$', (ROOT / "rules/extensions.bzl").read_text(), re.M)
    assert sorted(sections) == sorted([*public, "hip.toolkit", *(f"qola.{tag}" for tag in tags)])
