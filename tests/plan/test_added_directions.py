"""Directions that a manifest adds to libmha_fwd: what is planned of them, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree
from qola.errors import QolaError
from qola.kernel.config import KernelConfig
from qola.plan.model import Plan
from qola.verify.launches import make_problems
from tests.support.plans import plan_text

HEAD = '[build]\narchitectures = ["gfx942"]\nmode = "cpp_itfs"\n[[modules]]\nname = "libmha_fwd"\n'
BOTH = 'add_directions = ["fwd_appendkv", "pagedkv_prefill"]\n'
ALONE = 'drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]\nhsa_subdirs = []\n'
VARIANT = (
    '[[mha_fwd_variants]]\ndtype = "fp16"\nhdim = 128\nhas_mask = true\n'
    "has_bias = false\nhas_alibi = false\n"
)


Planning = Callable[[str], Plan]


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> Planning:
    return lambda text: plan_text(text, tree, tmp_path)


def roles(plan: Plan) -> Counter[str]:
    return Counter(kernel.role for kernel in plan.kernels)


def test_kernels_functions_and_dispatch(plan: Planning, tmp_path: Path) -> None:
    """Prevents: kernels without a function, or a function that a program cannot find or call."""
    made = plan(HEAD + BOTH + ALONE + VARIANT)
    # Paged prefill with a soft cap and without, in batch mode for any rows of K and whole tiles.
    assert roles(made) == {"pagedkv": 6, "appendkv": 12}
    assert made.warnings == ()
    (module,) = made.modules
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


def test_each_kernels_words_become_a_problem(plan: Planning) -> None:
    """Prevents: a launch test that asks for no rotation, or for nothing in pages."""
    made = plan(HEAD + BOTH + ALONE + VARIANT)
    (module,) = made.modules
    paged = make_problems(made, module, "pagedkv_prefill")
    assert {(p.mode, p.logits_soft_cap > 0, p.mask_type) for p in paged} == {
        (mode, logits, "bottom_right") for mode in ("batch", "group") for logits in (False, True)
    }
    assert all(p.layout.page_block_size for p in paged)
    appended = make_problems(made, module, "fwd_appendkv")
    assert {(p.layout.page_block_size, p.rope_type) for p in appended} == {
        (page, rope) for page in (0, 128) for rope in ("no", "inter", "half")
    }


def test_beside_aiters_directions_with_te(plan: Planning) -> None:
    """Prevents: a receipt that says nothing of them taken for one that has none."""
    variant = VARIANT + 'has_dropout = false\nmode = "batch"\n'
    made = plan(f'{HEAD}receipt = "te"\nadd_directions = ["fwd_appendkv"]\n{variant}')
    assert roles(made) == {"fwd": 2, "appendkv": 12, **asm_roles(made)}
    (module,) = made.modules
    assert [entry.name for entry in module.entries] == ["mha_fwd", "mha_fwd_appendkv"]


def asm_roles(plan: Plan) -> dict[str, int]:
    return {role: count for role, count in roles(plan).items() if role.startswith("asm_")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + BOTH + VARIANT + "has_lse = true\n",
            [
                "m.toml:6 [[modules]].add_directions",
                "pagedkv_prefill, of which no kernel is kept",
                "lse: wanted yes, there is only no",
                "take pagedkv_prefill out",
            ],
        ),
        (
            HEAD + BOTH + 'add_flags_extra_cc = ["-DENABLE_CK=0"]\n',
            ["m.toml:6 [[modules]].add_directions", "a library without Composable Kernel"],
        ),
        (
            HEAD.replace("fwd", "bwd") + BOTH,
            [
                "m.toml:6 [[modules]].add_directions",
                "fwd_appendkv, pagedkv_prefill added to libmha_bwd",
                "move add_directions to the [[modules]] table of libmha_fwd",
            ],
        ),
        (
            HEAD + BOTH + 'drop_directions = ["fwd_appendkv"]\n',
            ["fwd_appendkv, which drop_directions leaves out", "a direction in one of the two"],
        ),
        (
            HEAD + 'add_directions = ["fwd_pagedkv"]\n',
            ['"fwd_pagedkv"', "pagedkv_prefill or fwd_appendkv"],
        ),
    ],
)
def test_what_cannot_be_added_is_told(plan: Planning, text: str, said: list[str]) -> None:
    """Prevents: a library without a function that its manifest asks for by name."""
    with pytest.raises(QolaError) as error:
        plan(text)
    for words in said:
        assert words in str(error.value)


@pytest.mark.thorough
def test_kernels_by_name_alone(plan: Planning) -> None:
    """Prevents: a kernel of an added direction that no manifest can ask for by itself."""
    (of_ck, *_) = plan(HEAD + BOTH + ALONE + VARIANT).kernels
    name = KernelConfig.from_fields(of_ck.direction, of_ck.role, of_ck.fields).name
    named = f'{ALONE}add_directions = ["{of_ck.direction}"]\n[[kernels]]\nnames = ["{name}"]\n'
    made = plan(HEAD + named)
    assert [kernel.name for kernel in made.kernels] == [of_ck.name]
    assert made.warnings == ()
    (warning,) = [
        one
        for one in plan(HEAD.replace('"gfx942"', '"gfx1201", "gfx942"') + named).warnings
        if one.place == f"direction {of_ck.direction}"
    ]
    assert "no requested kernel is for gfx1201" in warning.found
