"""Manifests in the form of ROCm/QoLA's users: they load unchanged, their attention modules plan.

The files below data/qola_manifests have the keys and values of manifests that ROCm/QoLA and
TransformerEngine use, in words of our own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.errors import ManifestError
from qola.manifest.load import Manifest, load
from qola.plan.model import Plan
from qola.plan.spec import BuildSpec
from tests.support.plans import plan_text

FOLDER = Path(__file__).parent / "qola_manifests"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))


def manifest_of(name: str) -> Manifest:
    return load(FOLDER / f"{name}.toml", display=f"{name}.toml")


def plan_of(manifest: Manifest, tree: AiterTree) -> Plan:
    """Plan against a tree that is not the one the manifest names."""
    return plan_text(manifest, tree, spec=BuildSpec(override_aiter_commit=True))


def directions(plan: Plan) -> dict[str, int]:
    """Number of kernel instances by header set: those of assembly kernels have one of their own."""
    headers = (plan.kernel_groups[kernel.kernel_group].headers for kernel in plan.kernels)
    return dict(sorted(Counter(headers).items()))


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_without_a_word(name: str) -> None:
    """Prevents: a user of ROCm/QoLA who has to change a manifest, or is told to."""
    manifest = manifest_of(name)
    assert manifest.warnings == ()
    assert manifest.namespace.startswith("te")
    assert manifest.aiter_commit


def test_the_example_plans(tree: AiterTree) -> None:
    """Prevents: another set of kernels than TransformerEngine's out of its own manifest."""
    plan = plan_of(manifest_of("te_example"), tree)
    assert [module.library for module in plan.modules] == ["te_libmha_fwd.so", "te_libmha_bwd.so"]
    assert directions(plan) == {"bwd": 3320, "bwd_asm": 40, "fwd": 528}
    keys = [w.place.rpartition(".")[2] for w in plan.warnings if ".toml:" in w.place]
    # The wheel's module lists no sources, so that drop_srcs has nothing to drop: no warning.
    assert keys == ["aiter_commit"]


def test_two_archs_without_a_receipt_plan(tree: AiterTree) -> None:
    """Prevents: a default receipt other than AITER's, or an arch that gets no kernels."""
    plan = plan_of(manifest_of("te_two_archs"), tree)
    assert plan.archs == ("gfx942", "gfx950")
    found = directions(plan)
    assert set(found) == {"bwd", "bwd_asm", "fwd"}
    assert found["fwd"] == 5480 - 24
    # AITER's own set has more, which no call of gfx950's dispatch reaches: by buckets, by rows.
    assert found["bwd"] == 14784 + 120 + 252 - 2760 - 576


def test_a_group_of_modules_plans(tree: AiterTree) -> None:
    """Prevents: a host flag that is refused, or that does not reach the sources it is for."""
    whole = manifest_of("te_groups")
    own = tuple(module for module in whole.modules if module.group == "ck_fused_attn")
    plan = plan_of(replace(whole, modules=own), tree)
    assert directions(plan) == {"bwd": 4660 + 3320, "bwd_asm": 44, "fwd": 1020}
    forward, backward = plan.modules
    # AITER passes flags_extra_cc to HIP sources as well, before flags_extra_hip.
    assert forward.copts[0] == "-DFA_WITH_NATIVE_SPLITKV=1"
    assert forward.copts[1:] == tree.module("libmha_fwd").flags_hip
    assert "-DFA_WITH_NATIVE_SPLITKV=1" not in backward.copts


def test_modules_of_another_aiter_are_named(tree: AiterTree) -> None:
    """Prevents: a module silently left out because this AITER does not have it."""
    with pytest.raises(ManifestError) as caught:
        plan_of(manifest_of("te_groups"), tree)
    errors = [f for f in caught.value.findings if f.severity == "error"]
    assert [f.found for f in errors] == [
        'unknown module "libgemm_a4w4_blockscale"',
        'unknown module "libgemm_a4w4_asm"',
    ]


def test_gemms_for_python_plan(tree: AiterTree) -> None:
    """Prevents: a manifest of modules beside attention, which ROCm/QoLA builds, refused."""
    plan = plan_of(manifest_of("te_f4gemm"), tree)
    assert [module.library for module in plan.torch_modules] == [
        "te_module_gemm_a4w4_asm.so",
        "te_module_gemm_a4w4_blockscale.so",
    ]


def test_an_arch_without_kernels_is_named(tree: AiterTree) -> None:
    """Prevents: a library for gfx1250 out of an AITER that has no kernels for it."""
    with pytest.raises(ManifestError) as caught:
        plan_of(manifest_of("te_gfx1250"), tree)
    errors = [f for f in caught.value.findings if f.severity == "error"]
    # An AITER that has them has a script for their tables.
    assert (errors[0].place, errors[0].found) == (
        "te_gfx1250.toml:23 [[modules]].blob_gen_cmd",
        "aiter_meta/hsa/codegen.py is not in the tree",
    )
