"""Torch modules of attention: AITER's sources, and kernel instances shared with libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from qola.aiter.attention import TORCH_ATTENTION
from qola.aiter.tree import AiterTree
from qola.common.answers import AnswerCache
from qola.manifest.load import loads
from qola.manifest.types import BuildMode
from qola.plan.model import Plan, PlannedModule, TorchModule
from qola.plan.resolve import expand_variants, variant_modules
from qola.plan.spec import BuildSpec
from qola.repository.build_files import manifest_build_file
from qola_base.errors import PlanError
from tests.support.plans import plan_text

FWD = """
[[mha_fwd_variants]]
dtype = "fp16"
hdim = 32
has_mask = false
has_bias = false
has_alibi = false
has_dropout = false
has_lse = true
has_skip = false
has_sink = false
"""
BWD = """
[[mha_bwd_variants]]
dtype = "fp16"
hdim = 32
mode = "batch"
has_bias = false
has_alibi = false
has_mask = false
has_dropout = false
deterministic = false
"""
PlanFunction = Callable[..., Plan]


@pytest.fixture(scope="module")
def plan(tree: AiterTree, tmp_path_factory: pytest.TempPathFactory) -> PlanFunction:
    """Return a function that plans modules in a namespace, libraries in mode cpp_itfs.

    Calls with equal arguments return the cached plan: tests only read plans.
    """
    answers = AnswerCache(tmp_path_factory.mktemp("answers"), lambda: "this tree")

    @cache
    def run(
        *modules: str, more: str = FWD + BWD, mode: BuildMode | None = None, build: str = ""
    ) -> Plan:
        text = f'[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx950"]\n{build}\n'
        for name in modules:
            mode_line = 'mode = "cpp_itfs"\n' if name.startswith("lib") else ""
            text += f'[[modules]]\nname = "{name}"\n{mode_line}'
        return plan_text(text + more, tree, spec=BuildSpec(mode=mode), answers=answers)

    return run


def linked_labels(plan: Plan, module: PlannedModule | TorchModule, direction: str) -> set[str]:
    """Return the labels of the kernel instances of a direction that a module links."""
    units = plan.unit_by_kernel(module)
    return {
        f"{units[index].kernel_group}:{name}"
        for name, index in zip(plan.compiled_as(module), module.kernels, strict=True)
        if plan.kernels[index].direction == direction
    }


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", sorted(TORCH_ATTENTION))
def test_each_attention_module_is_planned(plan: PlanFunction, name: str) -> None:
    """Prevents: a torch module of AITER with sources or generators that qola does not support."""
    result = plan(name)
    module = result.torch_modules[0]
    assert (module.name, module.entry) == (name, name)
    assert (module.library, module.symbol) == (f"ns_{name}.so", f"PyInit_ns_{name}")
    assert any(source.name == "mha_common" for source in module.sources)
    assert len(module.init) == 1
    assert {*module.init} <= {*module.host_only}
    assert "mha_common" not in module.host_only
    if "_v3_" in name:
        assert module.code_objects
    else:
        assert module.kernels
        assert not module.code_objects
    assert Plan.from_json(result.to_json()) == result


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("module_mha_fwd", "fwd"),
        ("module_mha_varlen_fwd", "fwd"),
        ("module_mha_varlen_fwd", "fwd_splitkv"),
    ],
)
def test_kernel_instances_are_shared_with_the_library(
    plan: PlanFunction, name: str, direction: str
) -> None:
    """Prevents: kernel instances compiled a second time for the torch module."""
    both = plan("libmha_fwd", name, more=FWD)
    (library,), (module,) = both.modules, both.torch_modules
    assert (
        linked_labels(both, module, direction) == linked_labels(both, library, direction) != set()
    )
    # The flags of AITER's two modules differ nevertheless.
    splitkv = "-DCK_TILE_FMHA_FWD_SPLITKV_API=1"
    assert splitkv in library.copts
    assert splitkv not in module.copts


def test_compile_actions_are_shared_with_the_library(plan: PlanFunction) -> None:
    """Prevents: a manifest with torch modules that fills the cache a second time."""
    library, python = plan("libmha_fwd", more=FWD), plan("module_mha_varlen_fwd", more=FWD)
    assert library.header_set("fwd") == python.header_set("fwd")
    keys = [
        {(batch.name, batch.sha256, unit.copts) for unit in result.units for batch in unit.batches}
        for result in (library, python)
    ]
    assert keys[1] != set()
    assert keys[1] <= keys[0]


@pytest.mark.thorough
def test_rounding_flags_separate_kernel_instances(plan: PlanFunction) -> None:
    """Prevents: shared kernel instances although AITER rounds differently in the torch module."""
    both = plan("libmha_bwd", "module_mha_bwd", more=BWD)
    (library,), (module,) = both.modules, both.torch_modules
    assert not linked_labels(both, module, "bwd") & linked_labels(both, library, "bwd")
    assert {unit.copts for unit in both.units_of(module)} == {module.copts}
    assert "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=2" in module.copts
    assert "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=0" in library.copts


@pytest.mark.thorough
def test_forward_variants_become_modules(plan: PlanFunction) -> None:
    """Prevents: a ROCm/QoLA manifest that contains only variants and builds nothing."""
    more = FWD.replace("has_lse = true", "") + FWD.replace("hdim = 32", "hdim = 64")
    result = plan(more=more)
    names = [f"mha_varlen_fwd_fp16_nbias_nmask_{lse}_ndropout_nskip_nsink" for lse in LSE]
    assert [module.name for module in result.torch_modules] == names
    assert [module.library for module in result.torch_modules] == [f"ns_{n}.so" for n in names]
    for module, lse in zip(result.torch_modules, LSE, strict=True):
        kernels = result.kernels_of(module)
        assert {kernel.direction for kernel in kernels} == {"fwd"}
        assert {kernel.fields["lse"] for kernel in kernels} == {lse == "lse"}
    # Both variants select the module with LSE: it has the kernels of both.
    assert {k.fields["hdim_q"] for k in result.kernels_of(result.torch_modules[0])} == {32, 64}


LSE = ("lse", "nlse")


def test_empty_variant_selects_all_combinations() -> None:
    """Prevents: fewer modules than ROCm/QoLA builds for a table that omits keys."""
    (variant,) = loads("[[mha_fwd_variants]]\n", file="m.toml").fwd_variants
    names = list(expand_variants([variant, variant]))
    assert len(names) == 2 * 3 * 2**5
    assert names[-1] == "mha_varlen_fwd_fp16_nbias_nmask_nlse_ndropout_skip_sink"


@pytest.mark.parametrize(
    ("module", "build", "mode"),
    [
        ("module_mha_fwd", "", None),
        ("libmha_fwd", "", None),
        ("libmha_bwd", 'mode = "cpp_itfs"', None),
        ("libmha_bwd", "", "cpp_itfs"),
    ],
)
def test_variants_of_listed_modules_add_no_modules(
    module: str, build: str, mode: BuildMode | None
) -> None:
    """Prevents: an additional module for each variant besides the listed module."""
    text = f'[build]\n{build}\n[[modules]]\nname = "{module}"\n{FWD}'
    assert variant_modules(loads(text, file="m.toml"), mode) == ()


def test_torch_module_without_kernels_is_refused(plan: PlanFunction) -> None:
    """Prevents: a module that returns -1 for every problem."""
    with pytest.raises(PlanError, match="module_mha_fwd without any kernel instance"):
        plan("module_mha_fwd", more='drop_directions = ["fwd"]\n')


def test_build_file_has_the_torch_module(plan: PlanFunction) -> None:
    """Prevents: a planned torch module without a Bazel target."""
    text = manifest_build_file(plan("module_mha_fwd"), source="m.toml", aiter="aiter")
    assert "torch_module(" in text
    assert '":module_mha_fwd/fwd/fwd_fp16_' in text
    assert 'init = ["mha_fwd_pybind"],' in text
    assert 'torch = "@qola_torch",' in text
