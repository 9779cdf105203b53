"""Readers of users' JSON files: they read a text, or refuse it with a finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qola.kernel.archs import FILE, Archs
from qola.kernel.config import KernelConfig
from qola_base.errors import QolaError
from qola_lab.fmha.agreement import read_problems
from qola_lab.fmha.registry import Entry, Registry
from qola_lab.problems import AttentionProblem

CONFIG = KernelConfig.from_name(
    "fwd.bf16.batch.d128x128.gfx950.b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
    ".p-qr_async.v-row.mask.bias-alibi.nlse.dpad-8.x-new-value"
)
PROBLEM = AttentionProblem(
    "bwd", "bf16", 64, 64, (32,), (32,), 2, 1, 0.125, mask_type="top_left", dropout_p=0.5
)


def read_lines(text: str) -> object:
    Path("problems").write_bytes(text.encode("utf-8", "surrogateescape"))
    return read_problems(Path("problems"))


READERS: dict[str, tuple[Callable[[str], object], str]] = {
    "a config": (KernelConfig.from_json, CONFIG.to_json()),
    "a file of problems": (read_lines, PROBLEM.to_json()),
    "archs": (
        Archs.from_json,
        json.dumps(
            {**json.loads(FILE.read_text()), "offers": json.loads(FILE.read_text())["offers"][:1]}
        ),
    ),
    "a registry": (
        Registry.from_json,
        Registry([Entry("libmha_fwd.so", "k", ("gfx950",), CONFIG)]).to_json(),
    ),
}
DEEP = "[" * 100_000 + "]" * 100_000
RATHER_DEEP = "[" * 900 + "]" * 900
WRONG = (
    *("null", "true", "-1", "0", "1.5", '""', '"x"', "[]", "{}", "[[]]", '[{"a": []}]', "[null]"),
    *('"b' + "9" * 5000 + '"', '"\\ud800"', '"\\u0000"', "1e999", "NaN", "-Infinity"),
    *("9" * 400, "9" * 5000, DEEP, RATHER_DEEP, '{"a": ' * 900 + "1" + "}" * 900),
)


def refusal(read: Callable[[str], object], text: str) -> str:
    """Return the error of a reader, or "" if it reads the text."""
    try:
        read(text)
    except QolaError as error:
        return str(error)
    return ""


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each object or list in a JSON value, with each of its keys."""
    if isinstance(value, (dict, list)):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from parts_of(part)


@pytest.mark.parametrize("reader", READERS)
def test_wrong_and_deep_values(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a RecursionError, TypeError or OverflowError for a value of the wrong type."""
    monkeypatch.chdir(tmp_path)
    read, text = READERS[reader]
    read(text)
    value, texts = json.loads(text), [*WRONG]
    for parent, key in parts_of(value):
        before, parent[key] = parent[key], "MARK"
        texts += [json.dumps(value).replace('"MARK"', part) for part in WRONG]
        parent[key] = before
    errors = [error for changed in texts if (error := refusal(read, changed))]
    assert len(errors) > 20
    assert max(map(len, errors)) < 5000, "the message is too long"
    for damaged in ("{", "\x00", "\udcff", text[:-3]):
        with pytest.raises(QolaError):
            read(damaged)


@pytest.mark.parametrize("tile", ["", "x", "r4x1x1_b64", "b" + "9" * 5000])
def test_tiles_of_archs(tile: str) -> None:
    """Prevents: an invalid tile that is silently left out of the matrix instructions."""
    read, text = READERS["archs"]
    value = json.loads(text)
    value["offers"][0]["tiles"].append(tile)
    assert "expected a tile" in refusal(read, json.dumps(value))
