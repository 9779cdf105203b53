"""Functions of csrc/cpp_itfs: names and sources of libraries equal AITER's."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.template_functions import template_functions
from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.cpp_itfs.render import OPTIONAL_FLAGS, FunctionCall, render_functions
from qola.codegen.cpp_itfs.run import Absent

ARCHS = ("gfx942", "gfx950")
TYPES: dict[str, Any] = {"gqa_ratio": 8, "head_size": 128, "npar_loops": 1, "block_size": 16}
TYPES |= dict.fromkeys(("dtype", "kv_dtype", "out_dtype"), "__hip_bfloat16")
TYPES |= {"fp8_kv_dtype": "auto", "alibi_enabled": False, "logits_soft_cap_enabled": True}


def function_calls(tree: AiterTree, **requested: dict[str, Any]) -> list[FunctionCall]:
    known = template_functions(tree)
    return [FunctionCall(known[name], arguments) for name, arguments in requested.items()]


@pytest.fixture(scope="module")
def tree(aiter_tree: Path) -> AiterTree:
    return read_tree(aiter_tree)


def test_names_and_sources_equal_aiters(tree: AiterTree) -> None:
    """Prevents: a library with a name that AITER does not look for, or with other code."""
    ragged = {key: TYPES[key] for key in TYPES if key != "logits_soft_cap_enabled"}
    result = render_functions(
        tree, function_calls(tree, top_k_renorm_probs={"d": 128256}, pa_ragged=ragged), ARCHS, "7.2"
    )
    sampling, paged = result.functions
    digest = hashlib.md5(b"128256").hexdigest()
    assert sampling.name == f"top_k_renorm_probs_{digest}"
    assert f"void {sampling.name}(" in sampling.source
    assert "{" + "{" not in sampling.source
    # Arguments in the order of AITER's call, with their default values.
    types = "__hip_bfloat16"
    text = f"8_128_1_{types}_{types}_auto_{types}_16_256_1_false_false"
    assert paged.name == f"pa_ragged_{hashlib.md5(text.encode()).hexdigest()}"
    assert "vllm::Fp8KVCacheDataType::kAuto" in paged.source
    assert "kFp8E4M3" not in paged.source
    assert "-DENABLE_FP8" in paged.flags
    assert not {"-mllvm", "--offload-arch=gfx942"} & {*paged.flags}
    # AITER copies headers into one directory, where the last copy wins: the order is reversed.
    assert paged.include_dirs[0] == f"{tree.ck_dir}/include"
    assert paged.include_dirs[-1] == f"{tree.csrc_dir}/cpp_itfs"
    assert f"{tree.csrc_dir}/cpp_itfs/pa/pa_ragged.cpp.jinja" in result.inputs


def test_unsupported_functions_have_an_error(tree: AiterTree) -> None:
    """Prevents: a traceback for functions that need Triton or a missing file."""
    mla: dict[str, Any] = {"gqa_ratio": 16, "page_size": 1, "num_kv_splits": 4, "v_head_dim": 512}
    mla |= dict.fromkeys(("q_dtype", "kv_dtype"), "__hip_bfloat16")
    moe: dict[str, Any] = {"input_dtype": "uint8_t", "gate_fusion": "g1u1", "gate_dtype": "uint8_t"}
    moe |= {"activation": "silu", "selected_tile": 512}
    result = render_functions(
        tree, function_calls(tree, asm_mla_decode_fwd=mla, asm_moe=moe), ARCHS, "7.2"
    )
    first, second = result.functions
    assert first.error == "it imports triton"
    # The tree has this file below hsa/gfx942/.
    assert f"'{tree.hsa_dir}/fmoe/silu/fmoe_int8_g1u1_subGU_512.co'" in second.error
    # AITER's JIT refuses this arch.
    (refused,) = render_functions(
        tree, function_calls(tree, top_k_renorm_probs={"d": 8}), ["gfx1201"], "7.2"
    ).functions
    assert "AssertionError: One of GPU archs of ['gfx1201'] is invalid" in refused.error


def test_placeholders_of_pytorch_have_no_text() -> None:
    """Prevents: a library name or source that contains the text of a placeholder for PyTorch."""
    absent = Absent("torch.float16")
    assert isinstance(absent.itemsize() | None, Absent)
    with pytest.raises(RuntimeError, match=r"it asks PyTorch for torch\.float16"):
        f"{absent}"
    with pytest.raises(RuntimeError, match=r"torch\.float16\.is_complex"):
        bool(absent.is_complex)


def test_optional_flags_match_the_rules(repo_root: Path) -> None:
    """Prevents: an LLVM option passed twice to a compile, which LLVM refuses."""
    flags = ast.parse((repo_root / "rules_hip/rocm/flags.bzl").read_text("utf-8"))
    (rule_flags,) = (
        ast.literal_eval(node.value)
        for node in flags.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONAL_FLAGS"
    )
    assert {" ".join(flag) for flag in rule_flags} - {*OPTIONAL_FLAGS} == {
        "--offload-compression-level=19"
    }
    assert {*OPTIONAL_FLAGS} <= {" ".join(flag) for flag in rule_flags}
