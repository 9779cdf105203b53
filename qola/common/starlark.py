"""Writes Starlark values and calls in buildifier's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_ESCAPED = re.compile(r'[\\"\x00-\x1f\x7f\ud800-\udfff]')


def string(text: str) -> str:
    """Return a string literal for any text; characters outside ASCII stay as UTF-8."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in '\\"':
        return "\\" + character
    try:
        data = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = character.encode("utf-8", "surrogatepass")
    # Bazel reads bytes, and accepts only octal numeric escapes.
    return "".join(f"\\{byte:03o}" for byte in data)


def string_list(items: Iterable[str], indent: int) -> str:
    """Return a list of strings, one per line, inside a call that is indented by `indent`."""
    lines = [" " * (indent + 4) + string(item) + "," for item in items]
    return "\n".join(["[", *lines, " " * indent + "]"]) if lines else "[]"


def inline_list(items: Iterable[str]) -> str:
    """Return a list of strings in one line."""
    return "[" + ", ".join(string(item) for item in items) + "]"


def rule(function: str, **values: str | bool | Sequence[str] | None) -> str:
    """Return a call with plain values as arguments; None omits an argument."""
    given = {name: _value(value) for name, value in values.items() if value is not None}
    return call(function, given)


def _value(value: str | bool | Sequence[str]) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return string(value)
    return string_list(value, 4) if len(value) > 1 else inline_list(value)


def call(function: str, arguments: Mapping[str, str]) -> str:
    """Return a call with one argument per line; values are Starlark code."""
    lines = [f"    {name} = {value}," for name, value in arguments.items()]
    return "\n".join([f"{function}(", *lines, ")"])
