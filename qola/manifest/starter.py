"""The starter manifest: a small one that plans, with every other key of its tables beside it.

The text is written from the definitions that validate (qola.manifest.fields). In it
``#key = value``, without a blank, is a key that is left out; everything behind ``# `` is prose.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from qola.manifest.field_types import Field, Kind, Table
from qola.manifest.fields import (
    BUILD,
    BWD_VARIANTS,
    FWD_VARIANTS,
    MODULES,
    OVERRIDE_KEYS,
    PREBUILT,
    QOLA,
)
from qola.manifest.kernels import KERNELS
from qola.manifest.order import ORDER
from qola.manifest.triton import TRITON
from qola.manifest.values import either, expectation
from qola.manifest.words import NATIVE, TESTED_ARCHS

WIDTH = 100
"""Longest line of a comment."""

DEFAULT_NAMESPACE = "mine"
DEFAULT_ARCHS = (TESTED_ARCHS[-1],)

_SET: Mapping[Table, Mapping[str, str]] = MappingProxyType(
    {
        BUILD: {"mode": '"cpp_itfs"'},
        MODULES: {"name": '"libmha_fwd"', "receipt": '"te"'},
        FWD_VARIANTS: {
            "dtype": '"bf16"',
            "has_bias": "false",
            "has_alibi": "false",
            "has_lse": "true",
            "has_dropout": "false",
            "hdim": "128",
        },
    }
)
"""Keys the starter sets, as TOML writes their values: the forward kernels of one model."""

_EXAMPLES = {Kind.BOOL: "true", Kind.BOOL_SET: "true", Kind.EXPR_BOOL: "false"}


def starter_manifest(
    namespace: str = DEFAULT_NAMESPACE,
    archs: tuple[str, ...] = DEFAULT_ARCHS,
    *,
    file: str = "qola.toml",
    schema: str = "",
) -> str:
    """Return the text of a starter manifest; namespace and archs are not checked here.

    Args:
        file: the manifest's name, for the command in its first lines.
        schema: path of the JSON schema relative to the manifest, for editors; "" for none.
    """
    given = {
        QOLA: {"namespace": json.dumps(namespace)},
        BUILD: {"architectures": json.dumps(list(archs)), **_SET[BUILD]},
    }
    lines = [f"#:schema {schema}"] if schema else []
    lines += _prose("A manifest of qola: which attention libraries to build.")
    lines += _prose(f"What it asks for is shown by: qola plan {file}")
    lines += _prose(
        'A "#" right before a key means that the key is left out; without the "#" it counts. '
        "docs/reference/manifest.md describes them all."
    )
    for table in (QOLA, BUILD, MODULES, FWD_VARIANTS):
        lines += ["", *_prose(table.doc), table.header]
        lines += _fields(table, {**_SET.get(table, {}), **given.get(table, {})})
        if table is MODULES:
            more = [f.key for f in table.fields if f.key in OVERRIDE_KEYS]
            lines += ["", *_prose(f"keys that change AITER's own entry: {', '.join(more)}")]
    lines += ["", *_prose("The backward library."), f"#{MODULES.header}", '#name = "libmha_bwd"']
    lines += ['#receipt = "te"', "", *_prose(BWD_VARIANTS.doc), f"#{BWD_VARIANTS.header}"]
    lines += _fields(BWD_VARIANTS, {})
    for table in (KERNELS, TRITON, ORDER, PREBUILT):
        lines += ["", *_prose(table.doc), f"#{table.header}", *_fields(table, {})]
    return "\n".join(lines) + "\n"


def example_of(field: Field) -> str:
    """Return a value a field may have, as TOML writes it.

    Raises:
        ValueError: the definition of the field gives none.
    """
    if field.example:
        return field.example
    if field.allowed:
        return json.dumps(field.allowed[0])
    if field.kind in _EXAMPLES:
        return _EXAMPLES[field.kind]
    raise ValueError(f"{field.key} has no example in qola/manifest/fields.py")


def _fields(table: Table, values: Mapping[str, str]) -> Iterator[str]:
    for field in table.fields:
        if field.key in OVERRIDE_KEYS and table is MODULES:
            continue
        omitted = "" if field.required else f"; left out: {field.omitted}"
        yield ""
        yield from _prose(field.doc)
        yield from _prose(f"{_value(field)}{omitted}", indent="  ")
        if field.key in values:
            yield f"{field.key} = {values[field.key]}"
        else:
            yield f"#{field.key} = {example_of(field)}"


def _value(field: Field) -> str:
    """Return what a field may hold; of the archs, those that are tested by name."""
    if field is BUILD.by_key["architectures"]:
        choices = (*TESTED_ARCHS, "any other that the tree has kernels for", NATIVE)
        return f"{field.kind.value}: {either(choices)}"
    if field is TRITON.by_key["archs"]:
        return f"{field.kind.value}, archs by LLVM name"
    return expectation(field, short=True)


def _prose(text: str, indent: str = "") -> list[str]:
    start = f"# {indent}"
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_on_hyphens=False,
        break_long_words=False,
    )
