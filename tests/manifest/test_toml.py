"""Parsing TOML with line numbers, and writing TOML."""

from __future__ import annotations

from typing import Any

import pytest

from qola.manifest.toml import (
    TomlSyntaxError,
    parse_toml,
    toml_comment,
    toml_document,
    toml_line,
    toml_prose,
)
from qola_base.errors import unseen


def test_lines_of_keys_and_tables() -> None:
    """Prevents: a finding with the line of another [[table]]."""
    _, lines = parse_toml(
        "# comment\n"
        "[qola]\n"
        'namespace = "te"  # [not a table]\n'
        "\n"
        "[[modules]]\n"
        'name = "a"\n'
        "[[ modules ]]\n"
        '"name" = "b"\n'
        "[modules.flags]\n"
        "a.cu = [ ]\n"
    )
    assert lines.by_path == {
        ("qola",): 2,
        ("qola", "namespace"): 3,
        ("modules", 0): 5,
        ("modules", 0, "name"): 6,
        ("modules", 1): 7,
        ("modules", 1, "name"): 8,
        ("modules", 1, "flags"): 9,
        ("modules", 1, "flags", "a"): 10,
        ("modules", 1, "flags", "a", "cu"): 10,
    }


@pytest.mark.parametrize(
    "value",
    [
        '[\n  "]", # ]\n  "#",\n  \']\',\n]',
        '"""\n[x]\n\\""" = 1\n"""',
        "'''\n[x]\nkey = 1\n'''''",
        '"""a"""""',
        '[[1,\n2], [{ a = "}" }]]',
        '{ a = "\\"", b = [\n1] }',
        '""',
        '["", \'\', """"""]',
    ],
)
def test_statements_inside_values(value: str) -> None:
    """Prevents: wrong line numbers after a value that contains brackets, quotes or hashes."""
    text = f"first = {value}\nlast = 1\n"
    document, lines = parse_toml(text)
    assert set(document) == {"first", "last"}
    assert lines.of(("first",)) == 1
    assert lines.of(("last",)) == text.count("\n")
    assert all(path[0] in document for path in lines.by_path)


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("\n\nqola = { namespace = 'te' }\n", ("qola", "namespace"), 3),
        ("\n\n\nbuild.mode = 'x'\n", ("build", "mode"), 4),
        ("[qola]\r\nnamespace = 'te'\r\n", ("qola", "namespace"), 2),
        ("a = 1\n[[modules]]\nmode = 'x'\n", ("modules", 0, "name"), 2),
        ("a = 1\n[[modules]]\nmode = 'x'\n", ("modules",), 2),
        ("a = 1\n[[modules]]\nmode = 'x'\n", ("build",), 1),
    ],
)
def test_line_of_a_key(text: str, path: tuple[str | int, ...], line: int) -> None:
    """Prevents: a present or missing key reported at line 1, or lines counted twice."""
    _, lines = parse_toml(text)
    assert lines.of(path) == line


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("a = 1\nb = \n", 2, 5, "Invalid value"),
        ("a = 1\na = 2\n", 2, 6, "Cannot overwrite a value"),
        ("a = [1,\n2\n\n", 2, 2, "Unclosed array"),
        ("a = 'x", 1, 7, 'Expected "\'"'),
    ],
)
def test_syntax_errors_have_a_place(text: str, line: int, column: int, reason: str) -> None:
    """Prevents: a syntax error without line and column."""
    with pytest.raises(TomlSyntaxError) as caught:
        parse_toml(text)
    # Columns of duplicate keys differ by one or two between parsers.
    assert caught.value.line == line
    assert abs(caught.value.column - column) <= 2
    assert reason in caught.value.reason
    assert caught.value.source == text.split("\n")[line - 1]


def test_written_document_survives_a_round_trip() -> None:
    """Prevents: manifests with special characters or long lists that qola cannot read again."""
    tables: dict[str, Any] = {
        "qola": {"namespace": 'x\x7f\u2028"\U0001f600', "odd key": True},
        "modules": [{"srcs": ["x" * 40] * 4, "table": {"a": [1, [2, 3]]}}, {}],
        "empty": {},
    }
    assert parse_toml(toml_document(tables))[0] == tables


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a\nb = 1",
            "a\rb",
            "\x00",
            "\x1b[2J",
            "\x7f",
            "\x85",
            "\u2028",
            "\u202e",
            "\t",
            "\U0001f600",
        ),
        *('"', '"""', "'\n'", "\\", "#", "]", "\\u0000", "x" * 300, "a\n[prebuilt]\nurls = []\n#"),
    ],
)
def test_foreign_text_in_comments_and_values(text: str) -> None:
    """Prevents: a text of a model or a tree that ends its comment or its string."""
    long = toml_line("names", [text] * 50)
    lines = [toml_comment(text), *toml_prose(text, "  "), toml_line("a", [text])]
    lines += [*(f"#{line}" for line in long.splitlines()), long]
    written = "\n".join(lines)
    assert parse_toml(written)[0] == {"a": [text], "names": [text] * 50}
    assert not unseen(written.replace("\n", ""))
    if len(text) < 128:
        assert parse_toml(toml_line(text, 1))[0] == {text: 1}


def test_half_of_a_surrogate_pair_is_refused() -> None:
    """Prevents: a manifest that no TOML reader accepts."""
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        toml_line("a", ["x\ud800"])
