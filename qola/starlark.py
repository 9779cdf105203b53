"""Values and calls as Starlark writes them, formatted as buildifier would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def string(text: str) -> str:
    """Return a string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def string_list(items: Iterable[str], indent: int) -> str:
    """Return a list of strings, one a line, inside a call that is indented by `indent`."""
    lines = [" " * (indent + 4) + string(item) + "," for item in items]
    return "\n".join(["[", *lines, " " * indent + "]"]) if lines else "[]"


def inline_list(items: Iterable[str]) -> str:
    """Return a list of strings in one line."""
    return "[" + ", ".join(string(item) for item in items) + "]"


def string_dict(items: Mapping[str, str]) -> str:
    """Return a dict of strings as an argument of a call, one entry a line, sorted."""
    lines = [f"        {string(key)}: {string(value)}," for key, value in sorted(items.items())]
    return "\n".join(["{", *lines, "    }"])


def rule(function: str, **values: str | bool | Sequence[str] | None) -> str:
    """Return a call with plain values as arguments, None for one that is left out."""
    given = {name: _value(value) for name, value in values.items() if value is not None}
    return call(function, given)


def _value(value: str | bool | Sequence[str]) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return string(value)
    return string_list(value, 4) if len(value) > 1 else inline_list(value)


def call(function: str, arguments: Mapping[str, str]) -> str:
    """Return a call with one argument a line; the arguments' values are Starlark."""
    lines = [f"    {name} = {value}," for name, value in arguments.items()]
    return "\n".join([f"{function}(", *lines, ")"])
