"""Manifests of kernel configs: the library has exactly the requested kernels."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from qola.kernel.config import ConfigError, KernelConfig, Tile
from qola.manifest.load import loads
from qola_lab.fmha.build import make_manifest
from qola_lab.fmha.observe import observe_kernels
from qola_lab.fmha.registry import Registry
from qola_lab.problems import make_problem
from qola_lab.reference.masks import TOP_LEFT
from qola_lab.tests.verify.libraries import libraries

ARCHS = ("gfx950",)


@pytest.fixture(scope="module")
def forward(aiter_tree: Path) -> Registry:
    return observe_kernels(aiter_tree, "fwd", ARCHS)


def test_directions_without_a_function_of_aiter(aiter_tree: Path) -> None:
    """Prevents: a manifest that is refused because AITER has no function for its direction."""
    registry = observe_kernels(aiter_tree, "fwd_appendkv", ARCHS)
    kernels = registry.where(dtype="fp16", rope="half")
    assert len(kernels) == 16
    text = make_manifest([entry.config for entry in kernels], ARCHS)
    (module,) = loads(text, file="m.toml").modules
    assert module.add_directions == ("fwd_appendkv",)
    assert module.drop_directions == ("batch_prefill", "fwd", "fwd_splitkv")
    backward = KernelConfig.from_name(
        "bwd_dq_dk_dv.fp16.batch.d64x64.gfx950.b32x128x64x32x64x32x32x64x64_r1x4x1_r4x1x1_r1x4x1"
        "_w16x16x32_w16x16x32_o1_maxq0.nmask.bias-bias.dbias.ndropout.kind-no.nrandval.det.trload"
        ".dpad-0.dvpad-0"
    )
    both = loads(make_manifest([kernels[0].config, backward], ARCHS, namespace="b"), file="b.toml")
    assert (both.namespace, both.archs) == ("b", ARCHS)
    assert [module.name for module in both.modules] == ["libmha_bwd", "libmha_fwd"]
    assert {spec.config for spec in both.kernels} == {kernels[0].config, backward}


def test_a_library_has_exactly_the_requested_kernels(
    forward: Registry, tmp_path: Path, aiter_tree: Path
) -> None:
    """Prevents: kernels that were not requested, or a tile other than the user-defined one."""
    (ck_kernel, *_) = forward.where(dtype="fp16", hdim_q=32, mode="batch", mask=True, dropout=True)
    own_config = replace(
        ck_kernel.config,
        hdim_q=64,
        hdim_v=64,
        tile=Tile.parse("b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32") or Tile(()),
    )
    text = make_manifest([ck_kernel.config, own_config], ARCHS)
    (library,) = libraries(tmp_path, aiter_tree, text)
    registry = Registry.of("libmha_fwd", library.root)
    assert {entry.config for entry in registry} == {ck_kernel.config, own_config}
    assert registry.named(ck_kernel.name).config == ck_kernel.config
    assert library.plan.module("libmha_fwd").code_objects == ()
    # The dispatch selects the user-defined kernel for hdim 64, and CK's kernel for hdim 32.
    for config in (ck_kernel.config, own_config):
        problem = make_problem(
            "fwd",
            "fp16",
            seqlen_q=100,
            # With skpad, seqlen_k is not in whole tiles.
            seqlen_k=130 if config.skpad else 128,
            nhead_q=2,
            hdim=config.hdim_q,
            return_lse=bool(config.lse),
            **asdict(TOP_LEFT),
            bias_type=str(config.bias),
            dropout_p=0.5,
            logits_soft_cap=10.0 if config.logits else 0.0,
            min_seqlen_q=1 if config.skip else 0,
        )
        assert [entry.config for entry in registry.select(problem, ARCHS[0])] == [config]
    with pytest.raises(ConfigError, match="helper kernels come along"):
        make_manifest([replace(own_config, family="bwd_dot_do_o")], ARCHS)
    with pytest.raises(ConfigError, match="none"):
        make_manifest([], ARCHS)
