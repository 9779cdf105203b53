"""Kernel configs: conversion of every kernel of the pinned tree, names, JSON, and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.codegen.types import FieldValue
from qola.kernel.config import ConfigError, KernelConfig, Tile
from qola.kernel.rules import validate
from qola_lab.tests.fmha.observed import Observed, kernels

FORWARD = KernelConfig(
    family="fwd",
    dtype="bf16",
    hdim_q=128,
    hdim_v=128,
    tile=Tile((128, 128, 32, 128, 32, 128), ((4, 1, 1), (4, 1, 1)), ((32, 32, 16), (32, 32, 16))),
    mode="batch",
    arch="gfx950",
    pipeline="qr_async",
    vlayout="row",
    mask=True,
    bias="alibi",
    lse=False,
    dpad=8,
    more=(("new", "value"), ("other", False), ("size", 3)),
)
NAME = (
    "fwd.bf16.batch.d128x128.gfx950.b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
    ".p-qr_async.v-row.mask.bias-alibi.nlse.dpad-8.x-new-value.x-other-false.x-size-3"
)


def sizes(tile: Any, letter: str) -> list[int]:
    """Return the numbers of CK's tile whose names begin with a letter, in CK's order."""
    pattern = re.compile(rf"F_{letter}[mnkh]\w*")
    return [value for name, value in vars(tile).items() if pattern.fullmatch(name)]


def check(observed: Observed, seen: dict[KernelConfig, str]) -> None:
    config = KernelConfig.from_fields(
        observed.direction, observed.kernel.role, observed.kernel.fields
    )
    # Compare by repr: == treats True and 1 as equal.
    assert repr(sorted(config.fields().items())) == repr(sorted(observed.kernel.fields.items()))
    assert (config.direction, config.role) == (observed.direction, observed.kernel.role)
    assert config not in seen, f"{observed.kernel.name} and {seen[config]} have equal configs"
    seen[config] = observed.kernel.name
    assert config.more == ()
    assert validate(config) == ()
    assert KernelConfig.from_name(config.name) == config
    assert len(config.name) < 240, "no room for the suffix of a file"
    assert KernelConfig.from_json(config.to_json()) == config
    tile: Any = getattr(observed.item, "F_tile", None)
    if hasattr(tile, "F_bm0"):
        assert list(config.tile.block) == sizes(tile, "b")
        assert [n for waves in config.tile.waves for n in waves] == sizes(tile, "r")
        assert [n for warps in config.tile.warps for n in warps] == sizes(tile, "w")
        assert (config.tile.per_cu or -1) == tile.F_occupancy


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("direction", "count"),
    [("fwd", 5480), ("fwd_splitkv", 1080), ("batch_prefill", 128), ("bwd", 15156)],
)
def test_every_kernel_has_a_config(aiter_tree: Path, direction: str, count: int) -> None:
    """Prevents: two kernels with equal configs, a lost field of a kernel, or a wrong rule."""
    seen: dict[KernelConfig, str] = {}
    for observed in kernels(aiter_tree, direction):
        check(observed, seen)
    assert len(seen) == count


@pytest.mark.parametrize(("direction", "count"), [("fwd_appendkv", 198), ("pagedkv_prefill", 240)])
def test_directions_that_are_not_built_have_configs(
    aiter_tree: Path, direction: str, count: int
) -> None:
    """Prevents: append-KV, paged-KV or gfx12 kernels that configs cannot express."""
    found = kernels(aiter_tree, direction, 0, ("gfx942", "gfx1201"))
    configs = [KernelConfig.from_fields(direction, k.kernel.role, k.kernel.fields) for k in found]
    assert len(set(configs)) == count
    assert {config.arch for config in configs} == {"gfx9", "gfx12"}
    for observed, config in zip(found, configs, strict=True):
        assert config.fields() == observed.kernel.fields
        assert KernelConfig.from_name(config.name) == config


def test_names_and_json_are_stable() -> None:
    """Prevents: stored names that another version of qola reads as another kernel."""
    assert FORWARD.name == NAME
    assert KernelConfig.from_name(NAME) == FORWARD
    assert KernelConfig.from_json(FORWARD.to_json()) == FORWARD
    values = json.loads(FORWARD.to_json())
    assert values["tile"] == "b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
    assert values["more"] == {"new": "value", "other": False, "size": 3}
    assert "sink" not in values


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "not of the form"),
        ("fwd.bf16.batch.d128", "not of the form"),
        (NAME.replace("fwd.", "back.", 1), "expected one of fwd, fwd_splitkv"),
        (NAME.replace("b128x128x32", "c128"), "expected a tile"),
        (NAME.replace(".mask", ".musk"), "bf16.*|fwd.musk"),
        (NAME.replace(".mask.bias-alibi", ".bias-alibi.mask"), "fields in another order or form"),
        (NAME.replace("bias-alibi", "bias-7"), "7, expected"),
    ],
)
def test_invalid_names(name: str, message: str) -> None:
    """Prevents: a misspelt name read as another kernel."""
    with pytest.raises(ConfigError, match=message):
        KernelConfig.from_name(name)


def test_all_errors_of_a_config_are_reported() -> None:
    """Prevents: a file with several errors that reports only one at a time."""
    values = json.loads(FORWARD.to_json()) | {"lse": "yes", "tile": "128", "masks": True}
    del values["dtype"]
    with pytest.raises(ConfigError) as error:
        KernelConfig.from_json(json.dumps(values))
    places = [finding.place for finding in error.value.findings]
    assert places == ["fwd.masks", "fwd.dtype", "fwd.tile", "fwd.lse"]
    for text in ("[]", "{", "{}"):
        with pytest.raises(ConfigError):
            KernelConfig.from_json(text)


def test_helpers_of_assembly_kernels_have_no_config() -> None:
    """Prevents: a helper of an assembly kernel, for which CK has no family, named as another's."""
    with pytest.raises(ConfigError, match="bwd asm_dot_do_o"):
        KernelConfig.from_fields("bwd", "asm_dot_do_o", {})


ODD: Sequence[FieldValue] = (
    *("", "any", "true", "null", "7", "-7", "007", "a.b-c", "n", "nmask", "Große", "~s", "x~41"),
    *("/", True, False, None, 0, 7, -7),
)


def test_names_preserve_odd_values() -> None:
    """Prevents: a kernel name of another CK that is unreadable, or read as another kernel's."""
    names = [str(value) for value in ODD]
    configs = [replace(FORWARD, more=((name, value),)) for name in names for value in ODD]
    configs.append(replace(FORWARD, more=tuple(zip(reversed(names), ODD, strict=True))))
    texts = [value for value in ODD if isinstance(value, str)]
    configs += [replace(FORWARD, dtype=o, mode=o, arch=o, pipeline=o, mask=o) for o in texts]
    configs += [replace(FORWARD, hdim_q=-8, dpad=0), replace(FORWARD, mode=None, arch=None)]
    for config in configs:
        assert KernelConfig.from_name(config.name) == config
        assert KernelConfig.from_json(config.to_json()) == config
        assert re.fullmatch(r"[\w.~-]+", config.name, re.ASCII)
    with pytest.raises(ConfigError, match="escapes of a text"):
        KernelConfig.from_name(f"{FORWARD.name}.x-new-~ff")


@pytest.mark.parametrize("text", ["", "64", "b", "r1x1x1", "b64_q3", "b64_r1x1", "b64_o1_o2"])
def test_invalid_tiles(text: str) -> None:
    """Prevents: a part of another CK's tile that is silently dropped."""
    assert Tile.parse(text) is None
