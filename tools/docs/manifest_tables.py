"""The tables of docs/reference/manifest.md, from the field definitions."""

from __future__ import annotations

import re

from qola.manifest.constants import PROFILES
from qola.manifest.fields import TABLES, Field, TableSpec
from qola.manifest.values import expectation


def markdown_table(table: TableSpec) -> str:
    """Return one table of the manifest in Markdown, with a row per field."""
    rows = ["| Key | Value | Meaning | When left out |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{field.key}` | {_value(field)} | {field.doc} | {_omitted(field)} |"
        for field in table.fields
    ]
    return "\n".join(rows)


def update(page: str) -> str:
    """Update the tables between ``<!-- fields: NAME -->`` (or ``profiles``) and ``<!-- end -->``.

    Raises:
        ValueError: the page has no such markers for a table, or several.
    """
    blocks = {f"fields: {table.name}": markdown_table(table) for table in TABLES}
    blocks["profiles"] = _profiles()
    for name, text in blocks.items():
        begin = f"<!-- {name} -->"
        block = f"{begin}\n{text}\n<!-- end -->"
        pattern = re.escape(begin) + r"(?s:.*?)<!-- end -->"
        page, times = re.subn(pattern, lambda _, block=block: block, page)  # type: ignore[misc]
        if times != 1:
            raise ValueError(f"the page has {begin} {times} times, expected once")
    return page


def _profiles() -> str:
    rows = ["| Name | Receipt |", "| --- | --- |"]
    rows += [f"| `{name}` | {number} |" for name, number in PROFILES.items()]
    return "\n".join(rows)


def _value(field: Field) -> str:
    if len(field.allowed) > 10:
        return f"{field.kind.phrase}, see below"
    return expectation(field, short=True)


def _omitted(field: Field) -> str:
    return "an error" if field.required else field.omitted
