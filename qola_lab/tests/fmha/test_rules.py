"""Rules of kernel configs: each rule refuses some config, and CK's kernels break no rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.kernel.archs import FILE, Archs, pinned
from qola.kernel.config import KernelConfig, Tile
from qola.kernel.rules import RULES, InvalidError, Rule, check, validate
from qola_lab.fmha.observe import observe_archs

FORWARD = KernelConfig.from_name(
    "fwd.bf16.batch.d128x128.gfx950.b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
    ".p-qr_async.v-row.nmask.bias-no.nlse.ndropout.nsquant.nlogits.nskip.ntrload.spad.nskpad"
    ".dpad.dvpad"
)
BACKWARD = KernelConfig.from_name(
    "bwd_dq_dk_dv.fp16.batch.d64x64.gfx950"
    ".b32x128x64x32x64x32x32x64x64_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x32_o1_maxq0.nmask"
    ".bias-no.ndbias.ndropout.kind-no.nrandval.ndet.trload.dpad-8.dvpad-8"
)


def tiled(config: KernelConfig, text: str) -> KernelConfig:
    tile = Tile.parse(text)
    assert tile is not None
    return replace(config, tile=tile)


SMALL = "b128x64x32x64x32x64_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
COMBINE = KernelConfig("fwd_splitkv_combine", "bf16", 64, 64, Tile((32,)), "batch", "gfx9")
PAGED = replace(FORWARD, family="fwd_pagedkv", arch="gfx9", pipeline="qr_pagedkv", pagedkv=True)

APPEND = KernelConfig(
    "fwd_appendkv", "fp16", 64, 64, Tile((32, 64, 64, 64)), arch="gfx9", vlayout="row", rope="no"
)

#: A config that breaks only the named rule.
BREAKING = {
    "arch": replace(FORWARD, arch="gfx942"),
    "family": replace(PAGED, arch="gfx950"),
    "dtype": replace(FORWARD, arch="gfx12", dtype="fp32", pipeline="qr"),
    "pipeline": replace(FORWARD, pipeline="qs"),
    "trload": replace(FORWARD, arch="gfx9", pipeline="qr_async_trload", trload=True),
    "v3": replace(FORWARD, pipeline="qr_async_trload_v3", trload=True),
    "hdim": tiled(replace(FORWARD, hdim_q=60), SMALL.replace("x64x32x64_", "x128x32x64_")),
    "logits_bias": replace(FORWARD, logits=True, bias="alibi"),
    "symmetric": tiled(
        replace(FORWARD, hdim_q=32, hdim_v=64, pipeline="qr_async_trload", trload=True), SMALL
    ),
    "arity": tiled(FORWARD, "b128x128x32_r4x1x1_r4x1x1_w32x32x16_w32x32x16"),
    "per_cu": tiled(FORWARD, f"{FORWARD.tile}_o0"),
    "group_padding": replace(FORWARD, mode="group"),
    "async_padding": replace(FORWARD, dpad=False),
    "paged": replace(PAGED, pagedkv=False),
    "dbias": replace(BACKWARD, dbias=True, bias="alibi"),
    "dropout": replace(BACKWARD, dropout=True),
    "trload_padding": replace(BACKWARD, dvpad=1),
    "max_rows": tiled(replace(BACKWARD, mask=True), str(BACKWARD.tile).replace("maxq0", "maxq32")),
    "warps": tiled(FORWARD, str(FORWARD.tile).replace("w32x32x16", "w32x32x8", 1)),
    "whole_tile": tiled(FORWARD, str(FORWARD.tile).replace("x128x32x128_", "x144x32x128_")),
    "append_tile": tiled(APPEND, "b48x64x64x64"),
    "backward_tile": tiled(BACKWARD, str(BACKWARD.tile).replace("x32x64x64_", "x32x128x64_")),
}


def test_tables_match_ck(aiter_tree: Path) -> None:
    """Prevents: a table that was edited by hand, or belongs to another CK than the pinned one."""
    found = observe_archs(aiter_tree).to_json()
    assert found == FILE.read_text("utf-8"), "python -m qola_lab.fmha.observe TREE FILE writes it"
    assert Archs.from_json(found).to_json() == found


@pytest.mark.parametrize("tile", ["b0x64x64x64", "b32x64x0x64"])
def test_a_tile_without_size(tile: str) -> None:
    """Prevents: a tile with a size of 0 that only the compiler, or nothing, refuses."""
    (broken,) = validate(tiled(APPEND, tile))
    assert (broken.rule.name, broken.finding.found) == ("arity", "0 in a tile")


@pytest.mark.parametrize("name", RULES)
def test_each_rule_by_itself(name: str) -> None:
    """Prevents: a rule that never refuses, or that refuses configs of another rule."""
    broken = validate(BREAKING[name])
    assert [violation.rule.name for violation in broken] == [name]
    (violation,) = broken
    assert violation.finding.fix == violation.rule.reason


@pytest.mark.parametrize(
    "config", [FORWARD, BACKWARD, COMBINE, PAGED, APPEND], ids=lambda c: c.family
)
def test_valid_configs(config: KernelConfig) -> None:
    """Prevents: a rule that refuses a valid config."""
    assert validate(config) == ()
    check(config)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_sources_of_rules(aiter_tree: Path, rule: Rule) -> None:
    """Prevents: a rule whose reason CK's sources no longer contain."""
    file, source_text = rule.source
    ck = aiter_tree / read_tree(aiter_tree).fmha_dir
    assert source_text in (ck.parents[2] / file).read_text("utf-8")


def test_all_broken_rules_at_once() -> None:
    """Prevents: a config with several faults that reports only one at a time."""
    config = replace(FORWARD, arch="gfx942", hdim_v=60, logits=True, bias="bias", dpad=False)
    names = [broken.rule.name for broken in validate(config)]
    assert names == ["arch", "hdim", "logits_bias", "async_padding"]
    with pytest.raises(InvalidError) as error:
        check(config)
    assert len(error.value.findings) == len(names)


def test_another_ck_has_other_tables() -> None:
    """Prevents: a config refused for another CK because the pinned CK lacks its kernel."""
    config = BREAKING["v3"]
    offer = pinned().offers[0]
    extra_offer = replace(
        offer, family="fwd", arch="gfx950", dtype="bf16", pipelines=(str(config.pipeline),)
    )
    assert validate(config, replace(pinned(), offers=(*pinned().offers, extra_offer))) == ()
