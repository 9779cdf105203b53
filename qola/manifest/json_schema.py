"""Derives the manifest's JSON schema, for editors, from the field definitions.

It is of draft 4, which Taplo (Even Better TOML) documents; every keyword means the same in draft 7.
Only qola itself checks rules between keys.
"""

from __future__ import annotations

import json
from typing import Any

from qola.common.version import docs_url
from qola.manifest.fields import TABLES, Field, ItemType, Kind, Shape, TableSpec

DRAFT = "http://json-schema.org/draft-04/schema#"
FILE = "manifest.schema.json"
"""The schema's file name, in docs/reference and next to a starter manifest."""

Schema = dict[str, Any]


def manifest_schema() -> Schema:
    """Return the schema of a whole manifest."""
    return {
        "$schema": DRAFT,
        "title": "qola manifest",
        "description": "Which attention libraries qola builds "
        f"({docs_url('reference/manifest.md')}).",
        "type": "object",
        "properties": {table.name: _table(table) for table in TABLES},
        "anyOf": [{"required": [table.name]} for table in TABLES if table.required],
        "additionalProperties": False,
    }


def schema_text() -> str:
    """Return the text of the schema's file."""
    return json.dumps(manifest_schema(), indent=2, ensure_ascii=False) + "\n"


def field_schema(field: Field) -> Schema:
    """Return the schema of one field's value."""
    omitted = f" Left out: {field.omitted}." if field.omitted else ""
    described = {"description": f"{field.doc}.{omitted}"}
    if not field.kind.is_table:
        return {**described, **_shape(field)}
    values = {"type": "object", "additionalProperties": _shape(field)}
    return {**described, **values, **({} if field.may_be_empty else {"minProperties": 1})}


def _table(table: TableSpec) -> Schema:
    one: Schema = {
        "type": "object",
        "description": table.doc,
        "properties": {field.key: field_schema(field) for field in table.fields},
        "additionalProperties": False,
    }
    # Draft 4 refuses an empty list of required names.
    if required := [field.key for field in table.fields if field.required]:
        one["required"] = required
    if not table.repeated:
        return one
    many: Schema = {"type": "array", "description": table.doc, "items": one}
    return {**many, "minItems": 1} if table.required else many


def _shape(field: Field) -> Schema:
    one = _any_of([_item(field, item) for item in field.kind.items])
    items = one
    if field.kind is Kind.HDIM_SET:
        items = _any_of([one, {"type": "array", "items": one, "minItems": 2, "maxItems": 2}])
    many: Schema = {"type": "array", "items": items}
    if not field.may_be_empty:
        many["minItems"] = 1
    forms = {Shape.ONE: [one], Shape.LIST: [many]}
    return _any_of(forms.get(field.kind.shape, [one, many]))


def _any_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _item(field: Field, item: ItemType) -> Schema:
    if item is ItemType.BOOLEAN:
        return {"type": "boolean"}
    if item is ItemType.TEXT:
        return _text(field)
    if field.kind in (Kind.CHOICES, Kind.ARGUMENTS):
        return {"type": "integer"}
    number = {"type": "integer", "minimum": field.minimum, "maximum": field.maximum}
    names = [name for name, _ in field.names]
    return _any_of([number, {"type": "string", "enum": names}]) if names else number


def _text(field: Field) -> Schema:
    if field.allowed:
        empty = [""] if field.may_be_empty else []
        return {"type": "string", "enum": [*field.allowed, *empty]}
    text: Schema = {"type": "string"}
    if field.pattern:
        # A JSON schema searches for its pattern; a manifest's value must match in full.
        text["pattern"] = f"^(?:{field.pattern}){'?' if field.may_be_empty else ''}$"
    elif not field.may_be_empty:
        text["minLength"] = 1
    return text
