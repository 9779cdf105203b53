"""Manifests of ROCm/QoLA load unchanged, and their attention modules can be planned.

The files in qola_manifests have the keys and values of manifests that ROCm/QoLA and
TransformerEngine use, rewritten for these tests.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.manifest.load import Manifest, load
from qola.plan.model import Plan
from qola.plan.spec import BuildSpec
from qola_base.errors import ManifestError
from tests.support.plans import plan_text

FOLDER = Path(__file__).parent / "qola_manifests"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))


def load_manifest(name: str) -> Manifest:
    return load(FOLDER / f"{name}.toml", display=f"{name}.toml")


def plan_manifest(manifest: Manifest, tree: AiterTree) -> Plan:
    """Plan with another AITER tree than the manifest names."""
    return plan_text(manifest, tree, spec=BuildSpec(override_aiter_commit=True))


def directions(plan: Plan) -> dict[str, int]:
    """Count kernel instances by header set; helper kernels of assembly kernels use bwd_asm."""
    headers = (unit.headers for unit in plan.units for _ in unit.kernels)
    return dict(sorted(Counter(headers).items()))


@pytest.mark.parametrize("name", NAMES)
def test_manifest_loads_without_warnings(name: str) -> None:
    """Prevents: ROCm/QoLA users who must change a manifest, or get warnings about it."""
    manifest = load_manifest(name)
    assert manifest.warnings == ()
    assert manifest.namespace.startswith("te")
    assert manifest.aiter_commit


def test_example_selects_transformer_engines_kernels(tree: AiterTree) -> None:
    """Prevents: TransformerEngine's manifest with another set of kernels."""
    plan = plan_manifest(load_manifest("te_example"), tree)
    assert [module.library for module in plan.modules] == ["te_libmha_fwd.so", "te_libmha_bwd.so"]
    assert directions(plan) == {"bwd": 3320, "bwd_asm": 40, "fwd": 528}
    keys = [w.place.rpartition(".")[2] for w in plan.warnings if ".toml:" in w.place]
    # The wheel's module lists no sources, so that an unused drop_srcs is not a warning.
    assert keys == ["aiter_commit"]


def test_two_archs_with_the_default_receipt(tree: AiterTree) -> None:
    """Prevents: a default receipt other than AITER's, or an arch without kernels."""
    plan = plan_manifest(load_manifest("te_two_archs"), tree)
    assert plan.archs == ("gfx942", "gfx950")
    counts = directions(plan)
    assert set(counts) == {"bwd", "bwd_asm", "fwd"}
    assert counts["fwd"] == 5480 - 24
    # Without kernels of AITER that gfx950's dispatch never calls, by head dim buckets and by rows.
    assert counts["bwd"] == 14784 + 120 + 252 - 2760 - 576


def test_group_of_modules_is_planned(tree: AiterTree) -> None:
    """Prevents: a host flag that is refused, or that its sources do not get."""
    whole = load_manifest("te_groups")
    group_modules = tuple(module for module in whole.modules if module.group == "ck_fused_attn")
    plan = plan_manifest(replace(whole, modules=group_modules), tree)
    assert directions(plan) == {"bwd": 4660 + 3320, "bwd_asm": 44, "fwd": 1020}
    forward, backward = plan.modules
    # AITER passes flags_extra_cc to HIP sources as well, before flags_extra_hip.
    assert forward.copts[0] == "-DFA_WITH_NATIVE_SPLITKV=1"
    assert forward.copts[1:] == tree.module("libmha_fwd").flags_hip
    assert "-DFA_WITH_NATIVE_SPLITKV=1" not in backward.copts


def test_gemm_modules_are_planned(tree: AiterTree) -> None:
    """Prevents: GEMM modules refused, which ROCm/QoLA builds."""
    plan = plan_manifest(load_manifest("te_f4gemm"), tree)
    assert [module.library for module in plan.torch_modules] == [
        "te_module_gemm_a4w4_asm.so",
        "te_module_gemm_a4w4_blockscale.so",
    ]


def test_arch_without_kernels_is_an_error(tree: AiterTree) -> None:
    """Prevents: a gfx1250 library from an AITER tree without kernels for gfx1250."""
    with pytest.raises(ManifestError) as caught:
        plan_manifest(load_manifest("te_gfx1250"), tree)
    errors = [f for f in caught.value.findings if f.severity == "error"]
    # AITER trees with gfx1250 kernels have a script that writes their tables.
    assert (errors[0].place, errors[0].found) == (
        "te_gfx1250.toml:23 [[modules]].blob_gen_cmd",
        "aiter_meta/hsa/codegen.py is not in the tree",
    )
