"""The JSON Schema of manifests: consistent with qola.manifest.load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from qola.manifest.fields import TABLES, Field, TableSpec
from qola.manifest.json_schema import field_schema, manifest_schema
from qola.manifest.load import build_manifest
from qola.manifest.starter import starter_manifest
from qola.manifest.toml import Lines, parse_toml
from qola.manifest.values import check_value
from qola_base.errors import ManifestError

SCHEMA = jsonschema.Draft4Validator(manifest_schema())

FIELDS = [pytest.param(f, id=f"{table.name}.{f.key}") for table in TABLES for f in table.fields]

PROBES: tuple[Any, ...] = (
    *("", "x", "a b", "../x", "x/..", "a/../b", "/x", "a/b", "..x"),
    *("1abc", "a-b", "7", "7.2.4.1.0"),
    *("v7", "7.x", "native", "True", "'text'", "f'{CK_DIR}'", "gfx950", "bf16", "BF16", "64"),
    *(-1, 0, 1, 512, 513, 700, 1.0, 1.5, True, False, [], {}, [[]], [{}], [""], ["x"], ["x", ""]),
    *(["x", 1], ["../x"], ["a b"], ["7.2"], ["gfx950", "gfx95"], ["bf16", "fp16"], ["bf16", "x"]),
    *([64], [0], [513], [64, 128], [[192, 128]], [64, [192, 128]], [[192]], [[1, 2, 3]], [[0, 1]]),
    *([[1, 513]], [64, "x"], [1.0], [[1.0, 2]], [True], [True, False], [True, 1], [[True, 64]]),
    *(["true"], {"a": ["b"]}, {"a": []}, {"a": "b"}, {"a": [1]}, [["x"]]),
)
"""Values of every TOML type except dates, valid for some kinds of fields and invalid for others."""


def probes(field: Field) -> list[Any]:
    """Return test values for a field: PROBES, and the example of the field."""
    return [*PROBES, *([] if field.example is None else [field.example])]


def is_accepted(document: dict[str, Any]) -> bool:
    """Return whether qola accepts a parsed manifest."""
    try:
        build_manifest(document, Lines({}), "m.toml")
    except ManifestError:
        return False
    return True


def test_schema_is_valid_in_draft_4_and_7() -> None:
    """Prevents: a schema that editors refuse: Taplo documents draft 4, most others use draft 7."""
    jsonschema.Draft4Validator.check_schema(manifest_schema())
    jsonschema.Draft7Validator.check_schema({**manifest_schema(), "$schema": ""})


def test_every_field_is_described() -> None:
    """Prevents: a table or a key that the schema lacks or does not describe."""
    tables = manifest_schema()["properties"]
    assert set(tables) == {table.name for table in TABLES}
    for table in TABLES:
        schema = tables[table.name]["items"] if table.repeated else tables[table.name]
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(table.by_key)
        assert all(
            table.by_key[key].doc in value["description"]
            for key, value in schema["properties"].items()
        )


@pytest.mark.parametrize("field", FIELDS)
def test_schema_and_program_agree_on_values(field: Field) -> None:
    """Prevents: a value that qola accepts and the schema refuses, or the reverse."""
    validator = jsonschema.Draft4Validator(field_schema(field))
    values = [*probes(field), *field.allowed, *([value] for value in field.allowed)]
    verdicts = {
        repr(value): (not check_value(field, value)[1], validator.is_valid(value))
        for value in values
    }
    assert {
        text for text, (by_qola, by_schema) in verdicts.items() if by_qola != by_schema
    } == set()
    # Some values must be valid, and others invalid.
    assert {by_qola for by_qola, _ in verdicts.values()} == {True, False}


def test_manifests_match_the_schema(repo_root: Path) -> None:
    """Prevents: an editor that marks errors in a manifest which qola builds."""
    texts = [file.read_text("utf-8") for file in (repo_root / "manifests").glob("*.toml")]
    for text in [*texts, starter_manifest()]:
        document, _ = parse_toml(text)
        assert is_accepted(document)
        assert [error.message for error in SCHEMA.iter_errors(document)] == []


MODULE = {"name": "libmha_fwd"}
COMMIT = {"file": "f.py", "remote": "https://host/f.git", "commit": "1" * 40}
NEEDED: dict[str, dict[str, Any]] = {
    "modules": MODULE,
    "triton": {"kernels": ["f"], **COMMIT},
    "functions": {"name": "pa"},
}
WRONG: dict[str, dict[str, Any]] = {
    "no module": {},
    "empty modules": {"modules": []},
    "modules as one table": {"modules": MODULE},
    "a module that is not a table": {"modules": [MODULE, 1]},
    "a module without a name": {"modules": [{}]},
    "unknown key of a module": {"modules": [{**MODULE, "recepit": 700}]},
    "unknown table": {"modules": [MODULE], "module": {}},
    "key outside of any table": {"modules": [MODULE], "namespace": "te"},
    "qola as several tables": {"modules": [MODULE], "qola": [{}]},
    "unknown key": {"modules": [MODULE], "build": {"archs": ["gfx950"]}},
    "variants as one table": {"modules": [MODULE], "mha_fwd_variants": {}},
    "no kernel": {"triton": []},
    "no kernel beside modules": {"modules": [MODULE], "triton": []},
    "a kernel without a name": {"triton": [{}]},
    "forward's key": {"modules": [MODULE], "mha_bwd_variants": [{"has_lse": True}]},
}


@pytest.mark.parametrize("document", WRONG.values(), ids=WRONG)
def test_wrong_structure_is_refused_by_both(document: dict[str, Any]) -> None:
    """Prevents: an editor that accepts a misspelt or misplaced key."""
    assert not is_accepted(document)
    assert not SCHEMA.is_valid(document)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_wrong_value_is_refused_by_both(table: TableSpec) -> None:
    """Prevents: the schema of a field at the wrong place in the manifest's schema."""
    for field in table.fields:
        wrong = next(value for value in PROBES if check_value(field, value)[1])
        right = next(
            value
            for value in (*field.allowed, list(field.allowed[:1]), *probes(field))
            if not check_value(field, value)[1]
        )
        for value, valid in ((wrong, False), (right, True)):
            row = {**NEEDED.get(table.name, {}), field.key: value}
            rows: Any = [row] if table.repeated else row
            document = {"modules": [MODULE], table.name: rows}
            if table.name == "functions":
                document = {"build": {"mode": "aiter"}, table.name: rows}
            assert (is_accepted(document), SCHEMA.is_valid(document)) == (valid, valid), field.key


def test_schema_lines_point_to_the_schema(repo_root: Path) -> None:
    """Prevents: editors that look for the schema in a wrong directory."""
    for file in sorted((repo_root / "manifests").glob("*.toml")):
        first = file.read_text("utf-8").split("\n", 1)[0]
        assert first.startswith("#:schema "), file.name
        schema = file.parent / first.removeprefix("#:schema ")
        assert schema.samefile(repo_root / "docs/reference/manifest.schema.json")
