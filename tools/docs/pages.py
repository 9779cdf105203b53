"""Renders the generated pages of docs/reference, except api.md: Bazel extracts its docstrings."""

from __future__ import annotations

from pathlib import Path

from qola.cli.command_line import build_parser
from qola.manifest import json_schema
from tools.docs import cli, kernel_rules, manifest_tables


def render_pages(reference: Path) -> dict[str, str]:
    """Return the text of each page by its name, with the prose of the pages in `reference`."""
    return {
        "cli.md": cli.render(build_parser()),
        "kernel-rules.md": kernel_rules.render(),
        "manifest.md": manifest_tables.update((reference / "manifest.md").read_text("utf-8")),
        "manifest.schema.json": json_schema.schema_text(),
    }
