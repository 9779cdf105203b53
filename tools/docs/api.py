"""Writes docs/reference/api.md from the docstrings of rules/defs.bzl and rules/extensions.bzl."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tools.docs.cli import UPDATE

_HEAD = f"""\
# Rules, tags and providers

Generated from the docstrings in rules/ and rules_hip/ by `{UPDATE}`; do not edit. The guide is
[bazel.md](../guide/bazel.md).
"""
_TAGS = "## Tags in MODULE.bazel\n"
_EXTENSION = """\
```starlark
{name} = use_extension("{file}", "{name}")
```
"""
_FILES = {"hip": "@rules_hip//hip:extensions.bzl", "qola": "@qola//rules:extensions.bzl"}
_RULES = """\
## Rules in BUILD files

```starlark
load("@qola//rules:defs.bzl", ...)
```
"""
_HIP_RULES = """\
## HIP rules

```starlark
load("@rules_hip//hip:defs.bzl", ...)
```

The guide is [hip.md](../guide/hip.md).
"""
_PROVIDERS = """\
## Providers

For rules of your own that take a `qola_library`, a `hip_library`, or kernels in Triton.
"""


def render(
    defs: Mapping[str, Any],
    extensions: Mapping[str, Any],
    hip_defs: Mapping[str, Any],
    hip_extensions: Mapping[str, Any],
) -> str:
    """Return the page.

    Args:
        defs: ModuleInfo of rules/defs.bzl, as read_module returns it.
        hip_defs: ModuleInfo of rules_hip/hip/defs.bzl.

    Raises:
        ValueError: a public symbol has no docstring.
    """
    parts = [_HEAD, _TAGS]
    both = (extensions, hip_extensions)
    for extension in (one for module in both for one in module["module_extension_info"]):
        called = extension["extension_name"]
        parts.append(_EXTENSION.format(name=called, file=_FILES[called]))
        parts.append(_text(called, extension["doc_string"]))
        for tag in sorted(extension["tag_class"], key=lambda tag: str(tag["tag_name"])):
            name = f"{extension['extension_name']}.{tag['tag_name']}"
            parts += _section(name, tag["doc_string"], "Attribute", tag["attribute"])
    for head, module in ((_RULES, defs), (_HIP_RULES, hip_defs)):
        parts += [head, *_rules(module)]
    parts.append(_PROVIDERS)
    for provider in (*defs["provider_info"], *hip_defs["provider_info"]):
        name = provider["provider_name"]
        parts += _section(name, provider["doc_string"], "Field", provider["field_info"])
    return "\n".join(parts)


def _rules(module: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sections of a module's rules and functions, by name."""
    entries = {
        **{rule["rule_name"]: rule for rule in module["rule_info"]},
        **{function["function_name"]: function for function in module["func_info"]},
    }
    for name, entry in sorted(entries.items()):
        rows = entry.get("attribute") or entry.get("parameter") or ()
        kind = "Attribute" if "attribute" in entry else "Parameter"
        yield from _section(name, entry["doc_string"], kind, rows)


def _section(name: str, doc: str, kind: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield f"### {name}\n"
    yield _text(name, doc)
    lines = [_row(name, kind, row) for row in rows]
    if lines:
        types = kind == "Attribute"
        defaults = kind != "Field"
        heads = [kind, *["Type"] * types, *["Default"] * defaults, "Meaning"]
        yield "\n".join([f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads), *lines]) + "\n"


def _row(name: str, kind: str, row: Mapping[str, Any]) -> str:
    cells = [f"`{row['name']}`"]
    if kind == "Attribute":
        cells.append(row["type"].lower().replace("_", " "))
    if kind != "Field":
        default = row["default_value"].replace("|", "\\|")
        cells.append("required" if row["mandatory"] else f"`{default}`" if default else "")
    doc = row["doc_string"]
    if kind == "Attribute" and row["type"] == "NAME":
        doc = doc or "A unique name for this target."
    if not doc.strip() and row["name"] != "kwargs":
        raise ValueError(f"{name}: {row['name']} has no documentation")
    cells.append(_escaped(" ".join(doc.split())).replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def _text(name: str, doc: str) -> str:
    """Convert a docstring to Markdown: indented lines become code blocks."""
    if not doc.strip():
        raise ValueError(f"{name} has no documentation")
    parts = re.split(r"((?:^    .*\n?)+)", inspect.cleandoc(doc), flags=re.MULTILINE)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = f"\n```starlark\n{textwrap.dedent(part).rstrip()}\n```\n"
        else:
            parts[index] = _escaped(part)
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)) + "\n"


def _escaped(text: str) -> str:
    """Escape < outside of `code`."""
    return re.sub(r"`[^`]*`|<", lambda m: "\\<" if m[0] == "<" else m[0], text)
