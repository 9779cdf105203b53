"""Strings in BUILD files: the same text for Bazel, whatever its characters."""

from __future__ import annotations

import ast
import re

import pytest

from qola.starlark import rule, string

EVERY = "".join(map(chr, [*range(0x180), 0x2028, 0x202E, 0xFFFD, 0x1F600]))


def test_every_character_stays_itself() -> None:
    """Prevents: a quote, a line end or a control character that ends a string in a BUILD file."""
    literal = string(EVERY)
    assert "\n" not in literal
    assert "\r" not in literal
    assert ast.literal_eval(literal) == EVERY
    # Bazel reads these alone (and \\n, \\r, \\t, \\'); another one by number is an error to it.
    assert set(re.findall(r"\\(.)", literal)) <= {"\\", '"', *"0123"}


@pytest.mark.parametrize(
    ("text", "data"), [("a\udcff", b"a\xff"), ("\udc80b", b"\x80b"), ("\ud800", b"\xed\xa0\x80")]
)
def test_what_is_not_utf_8_stands_for_its_bytes(text: str, data: bytes) -> None:
    """Prevents: a file name in another encoding that stops the writing of a BUILD file."""
    literal = string(text)
    literal.encode("utf-8")
    # For Bazel a string is bytes, and \\377 the byte 0xff.
    assert ast.literal_eval(literal).encode("latin-1") == data


def test_a_text_cannot_leave_its_string() -> None:
    """Prevents: a name that adds an attribute, or a target, to a BUILD file."""
    text = 'a",\n)\nload("//evil:evil.bzl", "x")\n# \\'
    (statement,) = ast.parse(rule("filegroup", name=text, srcs=[text])).body
    assert isinstance(statement, ast.Expr)
    assert ast.dump(statement).count(repr(text)) == 2
