"""Torch modules: AITER's own sources, and the kernel instances that the libraries have."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from qola.aiter.attention import TORCH_ATTENTION
from qola.aiter.tree import AiterTree
from qola.answers import AnswerCache
from qola.errors import PlanError
from qola.manifest.load import loads
from qola.manifest.types import BuildMode
from qola.plan.model import Plan, PlannedModule, TorchModule
from qola.plan.spec import BuildSpec
from qola.plan.torch_variants import expand_variants, specs
from qola.repository.build_files import manifest_build_file
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
Planning = Callable[..., Plan]


@pytest.fixture(scope="module")
def plan(tree: AiterTree, tmp_path_factory: pytest.TempPathFactory) -> Planning:
    """Return a function that plans modules, each with its mode, in a namespace.

    The same are planned once, by cached answers of generators: tests only read plans.
    """
    answers = AnswerCache(tmp_path_factory.mktemp("answers"), lambda: "this tree")

    @cache
    def run(
        *modules: str, more: str = FWD + BWD, mode: BuildMode | None = None, build: str = ""
    ) -> Plan:
        text = f'[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx950"]\n{build}\n'
        for name in modules:
            own = 'mode = "cpp_itfs"\n' if name.startswith("lib") else ""
            text += f'[[modules]]\nname = "{name}"\n{own}'
        return plan_text(text + more, tree, spec=BuildSpec(mode=mode), answers=answers)

    return run


def compiled(plan: Plan, module: PlannedModule | TorchModule, direction: str) -> set[str]:
    """Return the labels of what is linked of a direction."""
    return {
        f"{kernel.kernel_group}:{name}"
        for name, kernel in zip(plan.compiled_as(module), plan.kernels_of(module), strict=True)
        if kernel.direction == direction
    }


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", sorted(TORCH_ATTENTION))
def test_each_attention_module_is_planned(plan: Planning, name: str) -> None:
    """Prevents: one of AITER's torch modules whose sources or generators are not followed."""
    found = plan(name)
    module = found.torch_modules[0]
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
    assert Plan.from_json(found.to_json()) == found


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("module_mha_fwd", "fwd"),
        ("module_mha_varlen_fwd", "fwd"),
        ("module_mha_varlen_fwd", "fwd_splitkv"),
    ],
)
def test_kernel_instances_are_those_of_the_library(
    plan: Planning, name: str, direction: str
) -> None:
    """Prevents: kernel instances that are compiled once more for Python."""
    both = plan("libmha_fwd", name, more=FWD)
    (library,), (module,) = both.modules, both.torch_modules
    assert compiled(both, module, direction) == compiled(both, library, direction) != set()
    # Although AITER's flags differ.
    splitkv = "-DCK_TILE_FMHA_FWD_SPLITKV_API=1"
    assert splitkv in library.copts
    assert splitkv not in module.copts


def test_no_action_is_added_to_those_of_the_library(plan: Planning) -> None:
    """Prevents: a manifest for Python that fills the cache a second time."""
    library, python = plan("libmha_fwd", more=FWD), plan("module_mha_varlen_fwd", more=FWD)
    assert library.header_set("fwd") == python.header_set("fwd")
    keys = [
        {
            (batch.name, batch.sha256, one.kernel_groups[batch.kernel_group].copts)
            for batch in one.batches
        }
        for one in (library, python)
    ]
    assert keys[1] != set()
    assert keys[1] <= keys[0]


@pytest.mark.thorough
def test_other_flags_make_other_kernel_instances(plan: Planning) -> None:
    """Prevents: kernel instances of a library in a module for which AITER rounds otherwise."""
    both = plan("libmha_bwd", "module_mha_bwd", more=BWD)
    (library,), (module,) = both.modules, both.torch_modules
    assert not compiled(both, module, "bwd") & compiled(both, library, "bwd")
    (group,) = {kernel.kernel_group for kernel in both.kernels_of(module)}
    assert both.kernel_groups[group].copts == module.copts
    assert "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=2" in module.copts
    assert "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=0" in library.copts


@pytest.mark.thorough
def test_forward_variants_become_modules(plan: Planning) -> None:
    """Prevents: a manifest of ROCm/QoLA's with variants alone that builds nothing."""
    more = FWD.replace("has_lse = true", "") + FWD.replace("hdim = 32", "hdim = 64")
    found = plan(more=more)
    names = [f"mha_varlen_fwd_fp16_nbias_nmask_{lse}_ndropout_nskip_nsink" for lse in LSE]
    assert [module.name for module in found.torch_modules] == names
    assert [module.library for module in found.torch_modules] == [f"ns_{n}.so" for n in names]
    for module, lse in zip(found.torch_modules, LSE, strict=True):
        kernels = found.kernels_of(module)
        assert {kernel.direction for kernel in kernels} == {"fwd"}
        assert {kernel.fields["lse"] for kernel in kernels} == {lse == "lse"}
    # Two tables name the second: it has the kernels of both.
    assert {k.fields["hdim_q"] for k in found.kernels_of(found.torch_modules[0])} == {32, 64}


LSE = ("lse", "nlse")


def test_a_variant_without_values_is_all_combinations() -> None:
    """Prevents: fewer modules than ROCm/QoLA makes of a table that leaves keys out."""
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
def test_modules_that_variants_select_of_stay_alone(
    module: str, build: str, mode: BuildMode | None
) -> None:
    """Prevents: a module for each variant beside the one that was asked for."""
    text = f'[build]\n{build}\n[[modules]]\nname = "{module}"\n{FWD}'
    assert specs(loads(text, file="m.toml"), mode) == ()


def test_a_torch_module_has_kernels(plan: Planning) -> None:
    """Prevents: a module that answers -1 to whatever it is asked."""
    with pytest.raises(PlanError, match="module_mha_fwd without any kernel instance"):
        plan("module_mha_fwd", more='drop_directions = ["fwd"]\n')


def test_a_torch_module_is_none_of_cpp_itfs(plan: Planning) -> None:
    """Prevents: a torch module where a C++ interface is asked for."""
    with pytest.raises(PlanError, match="module_mha_fwd in mode cpp_itfs"):
        plan("module_mha_fwd", mode="cpp_itfs")


def test_a_build_file_has_what_is_linked(plan: Planning) -> None:
    """Prevents: a torch module that Bazel is not told of."""
    text = manifest_build_file(plan("module_mha_fwd"), source="m.toml", aiter="aiter")
    assert "torch_module(" in text
    assert '":module_mha_fwd/fwd/fwd_fp16_' in text
    assert 'init = ["mha_fwd_pybind"],' in text
    assert 'torch = "@qola_torch",' in text
