"""docs/reference/manifest.md: it says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qola.manifest.load import loads
from tools.docs.manifest_tables import update


@pytest.fixture(scope="module")
def page(repo_root: Path) -> str:
    return (repo_root / "docs/reference/manifest.md").read_text("utf-8")


def test_the_tables_are_up_to_date(page: str) -> None:
    """Prevents: a field added, changed or removed without its documentation."""
    assert update(page) == page, "run: ./bazelw run //tools/docs:update"


def test_the_example_loads(page: str) -> None:
    """Prevents: an example that a reader copies and that fails."""
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert loads(example, file="docs/reference/manifest.md").warnings == ()
