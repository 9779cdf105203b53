"""Reads BUILD files as Python, whose syntax they have: what stands in them, whoever wrote it."""

from __future__ import annotations

import ast
import io
import re
import tokenize


def values_of(text: str) -> set[str]:
    """Return the strings of a BUILD file; fail where it is more than calls with plain values."""
    # Bazel's dialect refuses escapes by number other than octal ones.
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        escapes = re.findall(r"\\(.)", token.string) if token.type == tokenize.STRING else []
        assert set(escapes) <= {"\\", '"', *"01234567"}
    found = set()
    for statement in ast.parse(text).body:
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Call)
        assert isinstance(statement.value.func, ast.Name)
        parts = [*statement.value.args, *(keyword.value for keyword in statement.value.keywords)]
        for node in (node for part in parts for node in ast.walk(part)):
            assert isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.Load))
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found
