"""Lists of kernels: read as the program qola-kernels reads them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from qola.build.kernel_selection import (
    Chosen,
    ListLine,
    Selection,
    SelectionError,
    choose,
    read_line,
)

DIGITS = "0123456789abcdef0123456789abcdef"
ROWS = [("a", "gfx942"), ("a", "gfx950"), ("b", "gfx942")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", None),
        (" \t\r", None),
        ("# a comment", None),
        ("a", ListLine("a")),
        ("  a \t gfx950 \r", ListLine("a", "gfx950")),
        ("a gfx950 # why", ListLine("a", "gfx950")),
        ("a#b", ListLine("a")),
        ("some/where/a.cpp", ListLine("a")),
        ("a.so", ListLine("a")),
        ("a.b.c", ListLine("a")),
        # ck-jit's cache: eight digits; mkstemp's names have six characters.
        ("a.so.01234567", ListLine("a")),
        ("a.so.x1Y2z3 gfx950", ListLine("a", "gfx950", leftover=True)),
        ("a.so.x1Y_z3", ListLine("a")),
        ("a.cpp.x1Y2z3", ListLine("a")),
        (f"a/gfx942-{DIGITS}.so", ListLine("a", "gfx942")),
        (f"/cache/a/gfx942-{DIGITS}", ListLine("a", "gfx942")),
        (f"a/gfx942-{DIGITS}.so gfx950", ListLine("a", "gfx950")),
        (f"a/gfx942-{DIGITS}.so.tmp.12.0", ListLine("a", "gfx942", leftover=True)),
        (f"a/gfx942-{DIGITS}.so.lock", ListLine("a", "gfx942", leftover=True)),
        # Without a directory there is no name; with other digits it is no key.
        (f"gfx942-{DIGITS}.so", ListLine(f"gfx942-{DIGITS}")),
        (f"a/gfx942-{DIGITS.upper()}.so", ListLine(f"gfx942-{DIGITS.upper()}")),
        (f"a/-{DIGITS}.so", ListLine(f"-{DIGITS}")),
    ],
)
def test_lines(line: str, expected: ListLine | None) -> None:
    """Prevents: a line of somebody's list that is misread, or taken for a kernel."""
    assert read_line(line) == expected


def test_three_words(tmp_path: Path) -> None:
    """Prevents: a list of another kind taken for names; an error that does not say where."""
    (tmp_path / "list").write_text("a\n\none two three\n")
    with pytest.raises(SelectionError) as caught:
        Selection().add_file("list", tmp_path)
    assert caught.value.exit_code == 1
    assert "list:3" in str(caught.value)
    assert "one two three" in str(caught.value)


def test_files(tmp_path: Path) -> None:
    """Prevents: a list in a pipe that is not read; a file that is absent taken for an empty one."""
    (tmp_path / "list").write_bytes(b"a\r\nb.so.123abc\n\xff gfx942")
    selection = Selection()
    selection.add_file("list", tmp_path)
    selection.add_file("-", tmp_path, io.BytesIO(b"b gfx942\nb\x0cc\n"))
    assert selection.leftovers == 1
    assert selection.archs == {"a": set(), "\udcff": {"gfx942"}, "b": {"gfx942"}, "b\x0cc": set()}
    with pytest.raises(SelectionError, match="nowhere"):
        selection.add_file("nowhere", tmp_path)


def test_archs_add_up() -> None:
    """Prevents: a kernel dropped for an arch, because another line named it for one only."""
    selection = Selection()
    for line in ("a gfx942", "a gfx950", "b", "b gfx942", "c gfx942", "c"):
        selection.add(line)
    assert selection.archs == {"a": {"gfx942", "gfx950"}, "b": set(), "c": set()}


def test_choose() -> None:
    """Prevents: a name that is not there passed over in silence; rows in another order."""
    selection = Selection()
    assert selection.empty
    for line in ("b", "b gfx950", "a gfx950", "nobody gfx942", "gone"):
        selection.add(line)
    assert not selection.empty
    assert choose(ROWS, selection) == Chosen((("a", "gfx950"), ("b", "gfx942")), ("gone", "nobody"))
    selection.archs["b"] = {"gfx950"}
    assert choose(ROWS, selection).missing == ("b gfx950", "gone", "nobody")
    assert choose(ROWS, Selection(everything=True)) == Chosen(tuple(ROWS), ())
    assert choose([], Selection()) == Chosen((), ())


def test_a_single_leftover_selects_nothing() -> None:
    """Prevents: a name made of a temporary file's, which no manifest has."""
    selection = Selection()
    selection.add("a.so.abc123")
    assert selection.empty
    assert selection.leftovers == 1
