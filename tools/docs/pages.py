"""Renders the generated pages of docs/reference, except api.md: Bazel extracts its docstrings."""

from __future__ import annotations

import re
from pathlib import Path

from qola.cli.command_line import build_parser
from qola.kernel.archs import pinned
from qola.kernel.rules import RULES
from qola.manifest import json_schema
from qola.manifest.constants import PROFILES
from qola.manifest.fields import TABLES, Field, TableSpec
from qola.manifest.values import expectation
from tools.docs import cli

_RULES_HEAD = """\
# Rules of kernels

A [KernelConfig](../guide/python.md#configs-and-rules) must satisfy these rules. `validate` checks
them in this order. They are tables and filters of the generators, conditions of the dispatch, and
sizes whose remainders templates drop. The compiler reports Composable Kernel's static assertions.
A source is a file of Composable Kernel, and text in it. `./bazelw run //tools/docs:update` writes
this page.

| Rule | Because | Source |
| --- | --- | --- |
"""
_ARCHS_HEAD = """
## Kernels of Composable Kernel

Data types, head dimensions of Q and pipelines, by family and by Composable Kernel's name of the
arch. The tiles of the pinned Composable Kernel are in [archs.json](../../qola/kernel/archs.json).

| Family | Archs | Data types | Head dimensions | Pipelines |
| --- | --- | --- | --- | --- |
"""


def render_pages(reference: Path) -> dict[str, str]:
    """Return the text of each page by its name, with the prose of the pages in `reference`."""
    return {
        "cli.md": cli.render(build_parser()),
        "kernel-rules.md": _kernel_rules(),
        "manifest.md": _with_tables((reference / "manifest.md").read_text("utf-8")),
        "manifest.schema.json": json_schema.schema_text(),
    }


def _kernel_rules() -> str:
    """Return kernel-rules.md: the rules of kernel configs, and the kernels for each arch."""
    rules = [
        f"| `{rule.name}` | {rule.reason} | "
        f"{rule.source[0].rpartition('/')[2]}: `{rule.source[1]}` |"
        for rule in RULES.values()
    ]
    archs = pinned()
    offers = []
    for family, arch in dict.fromkeys((offer.family, offer.arch) for offer in archs.offers):
        of = archs.select(family, arch)
        hdims = sorted({size for offer in of for size in offer.hdims})
        pipelines = sorted({name for offer in of for name in offer.pipelines})
        words = (", ".join(map(str, all_)) for all_ in ([o.dtype for o in of], hdims, pipelines))
        offers.append(f"| {family} | {arch or 'any'} | {' | '.join(words)} |")
    return _RULES_HEAD + "\n".join(rules) + "\n" + _ARCHS_HEAD + "\n".join(offers) + "\n"


def _table(table: TableSpec) -> str:
    """Return one table of the manifest in Markdown, with a row per field."""
    rows = ["| Key | Value | Meaning | When left out |", "| --- | --- | --- | --- |"]
    rows += [
        f"| `{field.key}` | {_value(field)} | {field.doc} | {_omitted(field)} |"
        for field in table.fields
    ]
    return "\n".join(rows)


def _with_tables(page: str) -> str:
    """Return manifest.md with the tables between ``<!-- fields: NAME -->`` and ``<!-- end -->``.

    Raises:
        ValueError: the page has no such markers for a table, or several.
    """
    blocks = {f"fields: {table.name}": _table(table) for table in TABLES}
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
