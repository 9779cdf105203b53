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


def test_the_hdim_table_is_true(page: str) -> None:
    """Prevents: documentation of hdim that the program contradicts."""
    rows = re.findall(r"^\| `(hdim = .*?)` \| (.*?) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for written, meaning in rows:
        text = f'[[modules]]\nname = "libmha_fwd"\n[[mha_fwd_variants]]\n{written}\n'
        manifest = loads(text, file="m.toml")
        pairs = tuple((int(q), int(v)) for q, v in re.findall(r"\((\d+), (\d+)\)", meaning))
        assert manifest.fwd_variants[0].hdim == pairs
        assert bool(manifest.warnings) is ("warning" in meaning)
