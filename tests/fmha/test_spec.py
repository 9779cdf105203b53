"""Kernels by a few fields: the config that they stand for, and all that have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qola.fmha.observe import emitted
from qola.fmha.registry import Registry
from qola.fmha.spec import KernelSpec
from qola.kernel.config import ConfigError
from qola.kernel.rules.model import InvalidError
from tests.fmha.observed import quiet

ARCHS = ("gfx942", "gfx950")
TILE = "b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32"
BACKWARD = "b32x64x64x32x64x32x32x64x64_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0"


@pytest.fixture(scope="module")
def every(aiter_tree: Path) -> Registry:
    with quiet():
        return emitted(aiter_tree, "fwd", ARCHS).merged(emitted(aiter_tree, "bwd", ["gfx950"]))


def test_what_is_left_out_is_of_the_kernel_most_like_it(every: Registry) -> None:
    """Prevents: a default that CK has no kernel of, or that does more than was asked for."""
    spec = KernelSpec.of("fwd", dtype="bf16", hdim=64, arch="gfx950")
    config = spec.config(every)
    assert every.of_config(config).config == config
    assert (config.mode, config.mask, config.bias, config.lse) == ("batch", False, "no", False)
    assert (config.spad, config.skpad, config.dpad, config.dvpad) == (True, True, True, True)
    assert spec.config(every) == config
    more = KernelSpec.of("fwd", dtype="fp16", hdim=128, arch="gfx9", mask=True, mode="group")
    config = more.config(every)
    assert every.of_config(config).config == config
    assert (config.arch, config.mode, config.mask) == ("gfx9", "group", True)


def test_own_tiles(every: Registry) -> None:
    """Prevents: an own tile with the head dimensions of another, or a field of another family."""
    own = KernelSpec.of("fwd", dtype="bf16", arch="gfx950", tile=TILE, lse=True).config(every)
    assert (own.hdim_q, own.hdim_v, str(own.tile), own.lse) == (64, 64, TILE, True)
    assert KernelSpec.of("fwd", arch="gfx950").matching(every)[0].config.fields().keys() == (
        own.fields().keys()
    )
    # CK has this pipeline for a bias alone.
    plain = KernelSpec.of("fwd", dtype="fp16", hdim=32, arch="gfx950", pipeline="qr").config(every)
    assert (plain.pipeline, plain.bias, plain.lse) == ("qr", "no", False)
    dropped = KernelSpec.of("bwd_dq_dk_dv", dtype="fp16", hdim=64, arch="gfx950", dropout=True)
    assert (kind := dropped.config(every).dropout_kind)
    assert kind != "no"
    asked = KernelSpec.of("bwd_dq_dk_dv", dtype="fp16", arch="gfx950", tile=BACKWARD)
    backward = asked.config(every)
    assert (backward.hdim_q, backward.dropout_kind, backward.trload) == (64, "no", False)
    wrong = TILE.replace("b64x64x32", "b72x64x20")
    broken = KernelSpec.of("fwd", dtype="bf16", arch="gfx950", tile=wrong)
    with pytest.raises(InvalidError) as error:
        broken.config(every)
    assert len(error.value.findings) > 2


def test_kernels_for_any_arch(aiter_tree: Path) -> None:
    """Prevents: an arch that a family's kernels do not say, and that no kernel has."""
    with quiet():
        prefill = emitted(aiter_tree, "batch_prefill", ["gfx950"])
    spec = KernelSpec.of("batch_prefill", dtype="fp16", hdim=128, arch="gfx950")
    config = spec.config(prefill)
    assert prefill.of_config(config).config == config
    assert (config.arch, config.mode) == (None, "group")


def test_kernels_over_a_cache(aiter_tree: Path) -> None:
    """Prevents: rows that are rotated, or read from pages, though nobody has asked for it."""
    with quiet():
        append = emitted(aiter_tree, "fwd_appendkv", ["gfx950"])
        paged = emitted(aiter_tree, "pagedkv_prefill", ["gfx950"])
    own = KernelSpec.of("fwd_appendkv", dtype="fp16", tile="b32x64x64x64").config(append)
    assert (own.hdim_q, own.hdim_v, own.rope, own.pagedkv) == (64, 64, "no", False)
    assert (own.spad, own.skpad, own.dpad, own.dvpad) == (True,) * 4
    rotated = KernelSpec.of("fwd_appendkv", dtype="bf16", hdim=128, rope="half", pagedkv=True)
    config = rotated.config(append)
    assert append.of_config(config).config == config
    tile = TILE.replace("16x16x32", "16x16x16")
    prefill = KernelSpec.of("fwd_pagedkv", dtype="fp16", tile=tile).config(paged)
    assert (prefill.hdim_q, prefill.pagedkv, prefill.mask) == (64, True, False)
    with pytest.raises(InvalidError, match="append_tile"):
        KernelSpec.of("fwd_appendkv", dtype="fp16", tile="b48x64x64x64").config(append)


def test_wildcards(every: Registry) -> None:
    """Prevents: a pattern that takes other kernels, or an order that is another each time."""
    async_ = KernelSpec.of("fwd", dtype="*", pipeline="qr_async*", hdim=(64, 128), arch="gfx950")
    found = async_.matching(every)
    assert {one.config.pipeline for one in found} == {"qr_async", "qr_async_trload"}
    assert {one.config.hdim_q for one in found} == {64, 128}
    assert {one.config.dtype for one in found} == {"bf16", "fp16"}
    assert [one.name for one in found] == sorted(one.name for one in found)
    assert KernelSpec.of("fwd", pipeline="?r").matching(every)
    assert len(KernelSpec.of("fwd").matching(every)) == len(every.where(family="fwd"))
    tiled = KernelSpec.of("fwd", tile="b128x64x32x64x32x64_*", dtype="bf16").matching(every)
    assert {str(one.config.tile)[:22] for one in tiled} == {"b128x64x32x64x32x64_r4"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dtypes": "bf16"}, "fwd.dtypes"),
        ({"tile": "64"}, "a tile such as"),
        ({"dtype": ("bf16", "fp16")}, "one value for one kernel"),
        ({"pipeline": "qr*"}, "one value for one kernel"),
        ({"arch": "gfx12"}, "no kernel that CK emits"),
    ],
)
def test_what_is_no_kernel(every: Registry, fields: dict[str, Any], said: str) -> None:
    """Prevents: a misspelt field that is passed over."""
    with pytest.raises(ConfigError, match=said):
        KernelSpec.of("fwd", **fields).config(every)
    with pytest.raises(ConfigError, match="one of fwd"):
        KernelSpec.of("forward", **fields)
