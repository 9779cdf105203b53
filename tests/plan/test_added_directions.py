"""Directions that a manifest adds to libmha_fwd: their plans, and errors for invalid requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.kernel.config import KernelConfig
from qola.plan.model import Plan
from qola_base.errors import QolaError
from qola_lab.verify.launches import make_problems
from tests.support.plans import plan_text

HEAD = '[build]\narchitectures = ["gfx942"]\nmode = "cpp_itfs"\n[[modules]]\nname = "libmha_fwd"\n'
ADD_BOTH = 'add_directions = ["fwd_appendkv", "pagedkv_prefill"]\n'
NO_DEFAULT_DIRECTIONS = (
    'drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]\nhsa_subdirs = []\n'
)
VARIANT = (
    '[[mha_fwd_variants]]\ndtype = "fp16"\nhdim = 128\nhas_mask = true\n'
    "has_bias = false\nhas_alibi = false\n"
)


PlanFunction = Callable[[str], Plan]


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> PlanFunction:
    return lambda text: plan_text(text, tree, tmp_path)


def roles(plan: Plan) -> Counter[str]:
    return Counter(kernel.role for kernel in plan.kernels)


def test_kernels_functions_and_dispatch(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: kernels without a function, or a function that is not declared or dispatched."""
    result = plan(HEAD + ADD_BOTH + NO_DEFAULT_DIRECTIONS + VARIANT)
    # Paged prefill with and without a soft cap; in batch mode for any seqlen_k and for whole tiles.
    assert roles(result) == {"pagedkv": 6, "appendkv": 12}
    assert result.warnings == ()
    (module,) = result.modules
    required = {entry.name: entry.required for entry in module.entries}
    assert required == {
        "mha_fwd_pagedkv": (
            *("args", "stream_config", "q_dtype_str", "is_group_mode", "mask_type", "bias_type"),
            "has_lse",
        ),
        "mha_fwd_appendkv": ("args", "stream_config", "q_dtype_str", "rope_type"),
    }
    source = (tmp_path / module.entry_source.file).read_text()
    assert '#include "qola_kv.h"' in source
    assert "return ::qola_kv::mha_fwd_pagedkv(args," in source
    assert "QOLA_C_DEFINE(mha_fwd_appendkv, mha_fwd_appendkv_of_c)" in source
    header = (tmp_path / module.public_header.file).read_text()
    assert "QOLA_API float mha_fwd_appendkv(const fmha_fwd_appendkv_args& args," in header
    assert "QOLA_API float mha_fwd(" not in header
    dispatch = (tmp_path / "libmha_fwd/dispatch/fmha_fwd_appendkv_api.cpp").read_text()
    assert dispatch.count("return fmha_fwd_appendkv_<trait_") == 12
    stubs = [(tmp_path / stub.file).read_text() for stub in module.stubs]
    assert sorted(text.count("\nQOLA_STUB_0(") for text in stubs) == [6, 12]


def test_kernel_fields_become_problems(plan: PlanFunction) -> None:
    """Prevents: launch tests that never use RoPE or paged K and V."""
    result = plan(HEAD + ADD_BOTH + NO_DEFAULT_DIRECTIONS + VARIANT)
    (module,) = result.modules
    paged = make_problems(result, module, "pagedkv_prefill")
    assert {(p.mode, p.logits_soft_cap > 0, p.mask_type) for p in paged} == {
        (mode, logits, "bottom_right") for mode in ("batch", "group") for logits in (False, True)
    }
    assert all(p.layout.page_block_size for p in paged)
    appended = make_problems(result, module, "fwd_appendkv")
    assert {(p.layout.page_block_size, p.rope_type) for p in appended} == {
        (page, rope) for page in (0, 128) for rope in ("no", "inter", "half")
    }


def test_added_direction_with_receipt_te(plan: PlanFunction) -> None:
    """Prevents: an added direction without kernels, since receipt te does not mention it."""
    variant = VARIANT + 'has_dropout = false\nmode = "batch"\n'
    result = plan(f'{HEAD}receipt = "te"\nadd_directions = ["fwd_appendkv"]\n{variant}')
    assert roles(result) == {"fwd": 2, "appendkv": 12, **asm_roles(result)}
    (module,) = result.modules
    assert [entry.name for entry in module.entries] == ["mha_fwd", "mha_fwd_appendkv"]


def asm_roles(plan: Plan) -> dict[str, int]:
    return {role: count for role, count in roles(plan).items() if role.startswith("asm_")}


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            HEAD + ADD_BOTH + VARIANT + "has_lse = true\n",
            [
                "m.toml:6 [[modules]].add_directions",
                "pagedkv_prefill, of which no kernel is kept",
                "lse: wanted yes, there is only no",
                "take pagedkv_prefill out",
            ],
        ),
        (
            HEAD + ADD_BOTH + 'add_flags_extra_cc = ["-DENABLE_CK=0"]\n',
            ["m.toml:6 [[modules]].add_directions", "a library without Composable Kernel"],
        ),
        (
            HEAD.replace("fwd", "bwd") + ADD_BOTH,
            [
                "m.toml:6 [[modules]].add_directions",
                "fwd_appendkv, pagedkv_prefill added to libmha_bwd",
                "move add_directions to the [[modules]] table of libmha_fwd",
            ],
        ),
        (
            HEAD + ADD_BOTH + 'drop_directions = ["fwd_appendkv"]\n',
            ["fwd_appendkv, which drop_directions leaves out", "a direction in one of the two"],
        ),
        (
            HEAD + 'add_directions = ["fwd_pagedkv"]\n',
            ['"fwd_pagedkv"', "pagedkv_prefill or fwd_appendkv"],
        ),
    ],
)
def test_invalid_directions_are_refused(plan: PlanFunction, text: str, messages: list[str]) -> None:
    """Prevents: a library without a function that its manifest requests."""
    with pytest.raises(QolaError) as error:
        plan(text)
    for message in messages:
        assert message in str(error.value)


@pytest.mark.thorough
def test_named_kernel_of_an_added_direction(plan: PlanFunction) -> None:
    """Prevents: a kernel of an added direction that [[kernels]] cannot select."""
    (kernel_of_ck, *_) = plan(HEAD + ADD_BOTH + NO_DEFAULT_DIRECTIONS + VARIANT).kernels
    name = KernelConfig.from_fields(
        kernel_of_ck.direction, kernel_of_ck.role, kernel_of_ck.fields
    ).name
    direction = f'{NO_DEFAULT_DIRECTIONS}add_directions = ["{kernel_of_ck.direction}"]\n'
    kernel_text = f'{direction}[[kernels]]\nnames = ["{name}"]\n'
    result = plan(HEAD + kernel_text)
    assert [kernel.name for kernel in result.kernels] == [kernel_of_ck.name]
    assert result.warnings == ()
    (warning,) = [
        candidate
        for candidate in plan(
            HEAD.replace('"gfx942"', '"gfx1201", "gfx942"') + kernel_text
        ).warnings
        if candidate.place == f"direction {kernel_of_ck.direction}"
    ]
    assert "no requested kernel is for gfx1201" in warning.found
