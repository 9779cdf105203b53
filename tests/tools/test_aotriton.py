"""What docs/guide/triton.md says of AOTriton's releases."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.docs.aotriton_table import DATA, table, update

PAGE = Path(__file__).resolve().parents[2] / "docs/guide/triton.md"


def test_the_page_has_the_table_of_the_data() -> None:
    """Prevents: a table by hand, of which nobody knows where it is from."""
    page = PAGE.read_text(encoding="utf-8")
    assert update(page) == page, "./bazelw run //tools/docs:update"


def test_each_release_is_known() -> None:
    """Prevents: a release without a commit, which may come to mean another tree."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    named = {name for row in data["pytorch"] for key in ("upstream", "rocm") for name in row[key]}
    assert named == set(data["releases"])
    assert all(re.fullmatch("[0-9a-f]{40}", one["commit"]) for one in data["releases"].values())
    versions = [tuple(map(int, row["version"].split("."))) for row in data["pytorch"]]
    assert versions == sorted(versions)
    assert data["sources"]["pytorch"] in " ".join(table(data).split())


def test_a_page_without_a_place() -> None:
    """Prevents: an update that updates nothing."""
    with pytest.raises(ValueError, match="0 times"):
        update("# Nothing")
