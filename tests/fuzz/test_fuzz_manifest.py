"""Hostile manifests: each is taken or refused, in time, and in words that can be printed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qola.errors import unseen
from qola.manifest.fields import TABLES, Kind
from qola.manifest.load import load, loads
from qola.manifest.starter import example_of, starter_manifest
from qola.manifest.toml_lines import parse
from qola.manifest.toml_writer import toml_value
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate

ODD = (
    "0x" + "f" * 4000,
    "9" * 30,
    "-1",
    "true",
    "[]",
    "{}",
    '""',
    "[[1, 2], [3]]",
    "2020-01-01",
    "1.5",
    '{ a.b.c = ["x"] }',
)
PLAIN = {
    Kind.EXPR: "'a'",
    Kind.EXPR_BOOL: "false",
    Kind.EXPR_LIST: "['a', 'b']",
    Kind.TEXT_LIST: "['a', 'b']",
    Kind.EXPR_OR_LIST: "'a'",
    Kind.EXPR_LISTS: "{ a = ['b'] }",
}


def made_up(rng: random.Random) -> str:
    """Return a manifest of fields of the definitions, some with values of others."""
    lines = []
    single = [table for table in TABLES if not table.repeated]
    repeated = [table for table in TABLES if table.repeated]
    tables = [*rng.sample(single, rng.randint(0, 3)), *rng.choices(repeated, k=rng.randint(0, 4))]
    for table in rng.sample(tables, len(tables)):
        lines.append(table.header)
        lines += [f'name = "m{len(lines)}"'] if table.name == "modules" else []
        for field in rng.sample(table.fields, min(len(table.fields), rng.randint(0, 6))):
            if field.key == "name":
                continue
            given = field.example is not None or field.allowed
            value = toml_value(example_of(field)) if given else PLAIN[field.kind]
            if rng.random() < 0.1:
                escaped = json.dumps(rng.choice(HOSTILE), ensure_ascii=rng.random() < 0.7)
                value = rng.choice((rng.choice(ODD), escaped, escaped))
            if rng.random() < 0.05:
                value = "[" + f"{value}, " * rng.choice((2, 100, 5000)) + "]"
            lines.append(f"{field.key} = {value}")
    return "\n".join(lines) + "\n"


def text_of(rng: random.Random) -> str:
    """Return a manifest: a starter, one made up, or a changed one."""
    text = starter_manifest() if rng.random() < 0.2 else made_up(rng)
    return text if rng.random() < 0.5 else mutate(rng, text)


def strings(value: Any) -> Iterator[str]:
    """Yield all texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *strings(item))


def take(text: str) -> None:
    """Read a manifest; what it asks for can be written to files and be printed."""
    manifest = loads(text, file="m.toml")
    assert not [found for found in strings(manifest.to_json()) if unseen(found)]
    document, lines = parse(text)
    assert {path[0] for path in lines.by_path} == set(document)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.by_path.values())


def test_texts() -> None:
    """Prevents: a traceback, a wait or a message that moves the cursor, from a manifest's text."""
    fuzz(text_of, take)


def test_files(tmp_path: Path) -> None:
    """Prevents: the same from a file's bytes, whatever encoding or size it has."""
    file = tmp_path / "m.toml"

    def bytes_of(rng: random.Random) -> bytes:
        data = bytearray(text_of(rng).encode("utf-8", "replace"))
        for _ in range(rng.randint(0, 3)):
            place = rng.randint(0, len(data))
            data[place:place] = bytes(rng.choices(range(256), k=rng.choice((1, 4, 200_000))))
        return bytes(data)

    def take_file(data: bytes) -> None:
        file.write_bytes(data)
        load(file, display="m.toml")

    fuzz(bytes_of, take_file)


def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a fuzzer that finds, and says nothing or not how to see it again."""
    monkeypatch.setenv("QOLA_FUZZ_SEED", "5")
    with pytest.raises(pytest.fail.Exception, match=r"ZeroDivisionError(.|\n)*SEED=5 .*CASES=1"):
        fuzz(lambda rng: rng.random(), lambda _: 1 // 0)
