"""Writes TOML: values on one line, documents as tables below their headers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH = 100
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: object) -> str:
    """Return a string, number, boolean, list or mapping as TOML writes it on one line."""
    if isinstance(value, Mapping):
        items = (f"{_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    # JSON and TOML agree on the rest, except that TOML also escapes the delete character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_line(key: str, value: object) -> str:
    """Return ``key = value``; a list longer than a line has each item on a line of its own."""
    line = f"{_key(key)} = {toml_value(value)}"
    if len(line) > _WIDTH and isinstance(value, (list, tuple)):
        items = "".join(f"  {toml_value(item)},\n" for item in value)
        return f"{_key(key)} = [\n{items}]"
    return line


def toml_document(tables: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]]) -> str:
    """Return a document of tables; a sequence of mappings is an array of tables."""
    blocks = []
    for name, content in tables.items():
        single = isinstance(content, Mapping)
        header = f"[{_key(name)}]" if single else f"[[{_key(name)}]]"
        for table in (content,) if isinstance(content, Mapping) else content:
            lines = (toml_line(key, value) for key, value in table.items())
            blocks.append("\n".join([header, *lines]))
    return "\n\n".join(blocks) + "\n"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)
