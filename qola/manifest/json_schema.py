"""The manifest's JSON schema, for editors, written from the definitions that validate.

``python -m qola.manifest.json_schema docs/reference/manifest.schema.json`` brings the file up to
date. It is of draft 4, the one Taplo (Even Better TOML) documents; no keyword in it means something
else in draft 7. It says what JSON schema can: names, types, values and patterns. Rules between
keys (``native`` alone, a module declared once) only qola itself checks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qola.manifest.field_types import Field, Kind, Table
from qola.manifest.fields import TABLES
from qola.manifest.words import MAX_HDIM

DRAFT = "http://json-schema.org/draft-04/schema#"
FILE = "manifest.schema.json"
"""The schema's file name, here and beside a starter manifest."""

Schema = dict[str, Any]

_BOOLEAN: Schema = {"type": "boolean"}
_STRING: Schema = {"type": "string"}
_CHOICE: Schema = {"type": ["string", "integer", "boolean"]}


def manifest_schema() -> Schema:
    """Return the schema of a whole manifest."""
    return {
        "$schema": DRAFT,
        "title": "qola manifest",
        "description": "Which attention libraries qola builds (docs/reference/manifest.md).",
        "type": "object",
        "properties": {table.name: _table(table) for table in TABLES},
        "anyOf": [{"required": [table.name]} for table in TABLES if table.required],
        "additionalProperties": False,
        "definitions": {
            _DEFINED[field.kind]: _KINDS[field.kind](field)
            for table in TABLES
            for field in table.fields
            if field.kind in _DEFINED
        },
    }


def to_json() -> str:
    """Return the text of the schema's file."""
    return json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def _table(table: Table) -> Schema:
    one: Schema = {
        "type": "object",
        "description": table.doc,
        "properties": {field.key: _property(field) for field in table.fields},
        "additionalProperties": False,
    }
    # Draft 4 wants at least one name in "required".
    if required := [field.key for field in table.fields if field.required]:
        one["required"] = required
    if not table.repeated:
        return one
    many: Schema = {"type": "array", "description": table.doc, "items": one}
    return {**many, "minItems": 1} if table.required else many


def field_schema(field: Field) -> Schema:
    """Return the schema of one field's value."""
    return {**_description(field), **_KINDS[field.kind](field)}


def _property(field: Field) -> Schema:
    """The same as a part of the manifest's schema, which says once what fields have in common."""
    if field.kind not in _DEFINED:
        return field_schema(field)
    # Beside "$ref" draft 4 reads nothing, and the description would be lost.
    return {**_description(field), "allOf": [{"$ref": f"#/definitions/{_DEFINED[field.kind]}"}]}


def _description(field: Field) -> Schema:
    omitted = f" Left out: {field.omitted}." if field.omitted else ""
    return {"description": f"{field.doc}.{omitted}"}


def _text(field: Field) -> Schema:
    """One string, by itself or in a list: it may be empty where the field may."""
    if field.allowed:
        empty = [""] if field.may_be_empty else []
        return {"type": "string", "enum": [*field.allowed, *empty]}
    text: Schema = {"type": "string"}
    if field.pattern:
        # A pattern may match anywhere in JSON schema, and has to match in full in a manifest.
        text["pattern"] = f"^(?:{field.pattern}){'?' if field.may_be_empty else ''}$"
    elif not field.may_be_empty:
        text["minLength"] = 1
    return text


def _integer(field: Field) -> Schema:
    number = {**_at_least(field.minimum or 0), "maximum": field.maximum}
    names = [name for name, _ in field.names]
    return {"anyOf": [number, {"type": "string", "enum": names}]} if names else number


def _at_least(minimum: int) -> Schema:
    return {"type": "integer", "minimum": minimum}


def _list(items: Schema, *, may_be_empty: bool) -> Schema:
    array: Schema = {"type": "array", "items": items}
    return array if may_be_empty else {**array, "minItems": 1}


def _text_list(field: Field) -> Schema:
    return _list(_text(field), may_be_empty=field.may_be_empty)


def _text_set(field: Field) -> Schema:
    return {"anyOf": [_text(field), _text_list(field)]}


def _bool_set(_field: Field) -> Schema:
    return {"anyOf": [_BOOLEAN, _list(_BOOLEAN, may_be_empty=False)]}


def _hdim_set(field: Field) -> Schema:
    size = {**_at_least(field.minimum or 0), "maximum": MAX_HDIM}
    pair = {"type": "array", "items": size, "minItems": 2, "maxItems": 2}
    return {"anyOf": [size, _list({"anyOf": [size, pair]}, may_be_empty=False)]}


def _expr_or_list(field: Field) -> Schema:
    return {"anyOf": [_STRING, _text_list(field)]}


# Kinds whose fields have the same values, whichever the field.
_DEFINED = {Kind.BOOL_SET: "bool_set", Kind.HDIM_SET: "hdim_set"}

_KINDS: dict[Kind, Callable[[Field], Schema]] = {
    Kind.TEXT: _text,
    Kind.INTEGER: _integer,
    Kind.TEXT_LIST: _text_list,
    Kind.TEXT_SET: _text_set,
    Kind.BOOL: lambda _: {"type": "boolean"},
    Kind.BOOL_SET: _bool_set,
    Kind.HDIM_SET: _hdim_set,
    Kind.INTEGER_SET: lambda field: {
        "anyOf": [_integer(field), _list(_integer(field), may_be_empty=False)]
    },
    Kind.CHOICES: lambda _: {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"anyOf": [_CHOICE, _list(_CHOICE, may_be_empty=False)]},
    },
    Kind.TEXTS: lambda field: {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": _text(field),
    },
    Kind.EXPR: lambda _: _STRING,
    Kind.EXPR_BOOL: lambda _: {"type": ["boolean", "string"]},
    Kind.EXPR_LIST: _text_list,
    Kind.EXPR_OR_LIST: _expr_or_list,
    Kind.EXPR_LISTS: lambda _: {
        "type": "object",
        "additionalProperties": {"type": "array", "items": _STRING},
    },
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(to_json(), "utf-8")
