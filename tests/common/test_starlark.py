"""String literals in BUILD files: Bazel reads the original text, for all characters."""

from __future__ import annotations

import ast
import re

import pytest

from qola.common.starlark import rule, string

ALL_CHARACTERS = "".join(map(chr, [*range(0x180), 0x2028, 0x202E, 0xFFFD, 0x1F600]))


def test_all_characters_are_preserved() -> None:
    """Prevents: a quote, line end or control character that ends a string in a BUILD file."""
    literal = string(ALL_CHARACTERS)
    assert "\n" not in literal
    assert "\r" not in literal
    assert ast.literal_eval(literal) == ALL_CHARACTERS
    # Bazel accepts only these escapes and \\n, \\r, \\t, \\'; other numeric escapes are errors.
    assert set(re.findall(r"\\(.)", literal)) <= {"\\", '"', *"0123"}


@pytest.mark.parametrize(
    ("text", "data"), [("a\udcff", b"a\xff"), ("\udc80b", b"\x80b"), ("\ud800", b"\xed\xa0\x80")]
)
def test_surrogates_are_written_as_bytes(text: str, data: bytes) -> None:
    """Prevents: a file name in another encoding for which no BUILD file can be written."""
    literal = string(text)
    literal.encode("utf-8")
    # Bazel's strings consist of bytes: \\377 is the byte 0xff.
    assert ast.literal_eval(literal).encode("latin-1") == data


def test_text_cannot_end_its_string() -> None:
    """Prevents: a name that adds an attribute or a target to a BUILD file."""
    text = 'a",\n)\nload("//evil:evil.bzl", "x")\n# \\'
    (statement,) = ast.parse(rule("filegroup", name=text, srcs=[text])).body
    assert isinstance(statement, ast.Expr)
    assert ast.dump(statement).count(repr(text)) == 2
