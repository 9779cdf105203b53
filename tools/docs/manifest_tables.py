"""The tables of docs/reference/manifest.md, from the field definitions."""

from __future__ import annotations

import re

from qola.manifest.field_types import Field, Table
from qola.manifest.fields import TABLES
from qola.manifest.values import expectation


def markdown_table(table: Table) -> str:
    """Return one table of the manifest as a Markdown table, a row for each field."""
    rows = ["| Key | Value | Meaning | When left out |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{field.key}` | {_value(field)} | {field.doc} | {_omitted(field)} |"
        for field in table.fields
    ]
    return "\n".join(rows)


def update(page: str) -> str:
    """Return the page with what is between ``<!-- fields: NAME -->`` and ``<!-- end -->`` renewed.

    Raises:
        ValueError: a table of the manifest has no such place on the page, or several.
    """
    for table in TABLES:
        begin = f"<!-- fields: {table.name} -->"
        block = f"{begin}\n{markdown_table(table)}\n<!-- end -->"
        pattern = re.escape(begin) + r"(?s:.*?)<!-- end -->"
        page, times = re.subn(pattern, lambda _, block=block: block, page)  # type: ignore[misc]
        if times != 1:
            raise ValueError(f"{begin} stands {times} times on the page, not once")
    return page


def _value(field: Field) -> str:
    if len(field.allowed) > 10:
        return f"{field.kind.value}, see below"
    return expectation(field)


def _omitted(field: Field) -> str:
    return "an error" if field.required else field.omitted
