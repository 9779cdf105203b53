"""docs/reference/manifest.md: it says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qola.errors import ManifestError
from qola.manifest.constants import KNOWN_ARCHS, TESTED_ARCHS
from qola.manifest.fields import TABLES
from qola.manifest.load import loads
from tools.docs.manifest_tables import markdown_table, update


@pytest.fixture(scope="module")
def page(repo_root: Path) -> str:
    return (repo_root / "docs/reference/manifest.md").read_text("utf-8")


def test_the_tables_are_up_to_date(page: str) -> None:
    """Prevents: a field added, changed or removed without its documentation."""
    assert update(page) == page, "run: ./bazelw run //tools/docs:update"


def test_every_field_has_its_row(page: str) -> None:
    """Prevents: a documentation generator that drops fields."""
    for table in TABLES:
        rows = set(re.findall(r"^\| `(\w+)` \|", markdown_table(table), re.MULTILINE))
        assert rows == set(table.by_key)
        assert table.header in page


def test_a_page_without_a_place_for_a_table_is_refused(page: str) -> None:
    """Prevents: a table silently left out of the page."""
    with pytest.raises(ValueError, match="fields: build"):
        update(page.replace("<!-- fields: build -->", ""))


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


def test_the_refused_namespaces_are_refused(page: str) -> None:
    """Prevents: a list of refused names that is wrong."""
    (text,) = re.findall(r"Refused are (.*?)\n\n", page, re.DOTALL)
    names = re.findall(r"`(\w+)`", text)
    assert {"a__b", "linux", "std", "qola"} <= set(names)
    for name in names:
        with pytest.raises(ManifestError):
            loads(f'[qola]\nnamespace = "{name}"\n[[modules]]\nname = "m"\n', file="m.toml")


def test_architectures_are_named_right(page: str) -> None:
    """Prevents: support claimed in the page that is not there, or the reverse."""
    (text,) = re.findall(r"The tests of qola build for (.*?)\. ", page)
    assert tuple(re.findall(r"`(gfx\w+)`", text)) == TESTED_ARCHS
    assert set(TESTED_ARCHS) < set(KNOWN_ARCHS)
