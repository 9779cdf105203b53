"""docs/reference/manifest.md: its tables match the code, and its example loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qola.manifest.load import loads
from tools.docs.manifest_tables import update


@pytest.fixture(scope="module")
def page(repo_root: Path) -> str:
    return (repo_root / "docs/reference/manifest.md").read_text("utf-8")


def test_tables_are_up_to_date(page: str) -> None:
    """Prevents: a field added, changed or removed without its documentation."""
    assert update(page) == page, "run: ./bazelw run //tools/docs:update"


def test_example_loads(page: str) -> None:
    """Prevents: an example that fails when a reader copies it."""
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert loads(example, file="docs/reference/manifest.md").warnings == ()
