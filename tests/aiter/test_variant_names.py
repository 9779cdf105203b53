"""The names by which AITER's Python code imports variants of modules."""

from __future__ import annotations

from pathlib import Path

from qola.aiter.tree import read_tree
from qola.aiter.variant_names import variant_names
from tests.support.later_tree import write_later_tree

OPS = """
def generate(q, bias, soft_cap):
    md_name = "mha_fwd"
    other = "*"
    if q.dtype == "fp16":
        md_name += "_fp16"
        other += "fp16*"
    elif q.dtype == "bf16":
        md_name += "_bf16"
    if 0.0 < soft_cap:
        md_name += "_logits"
    else:
        md_name += "_nlogits"
    return {"md_name": md_name, "blob_gen_cmd": other}

def by_type(op_name, q):
    md_name = f"module_aiter_{op_name}_{q.dtype}"
    return {"md_name": md_name}

@compile_ops("module_mha_fwd", fc_name="mha_fwd", gen_func=generate)
def mha_fwd(q, bias, soft_cap): ...

@compile_ops("module_aiter_operator", gen_func=by_type)
def add(q): ...

@compile_ops("module_norm")
def norm(q): ...
"""


def test_names_of_all_branches(tmp_path: Path) -> None:
    """Prevents: AITER compiles a variant although a prebuilt module contains its kernels."""
    root = write_later_tree(tmp_path)
    (root / "aiter/ops").mkdir()
    (root / "aiter/ops/mha.py").write_text(OPS, "utf-8")
    assert variant_names(read_tree(root)) == {
        "module_mha_fwd": (
            "mha_fwd_bf16_logits",
            "mha_fwd_bf16_nlogits",
            "mha_fwd_fp16_logits",
            "mha_fwd_fp16_nlogits",
        )
    }


def test_names_of_the_wheel(aiter_tree: Path) -> None:
    """Prevents: qola no longer finds variant names in the wheel."""
    found = variant_names(read_tree(aiter_tree))
    assert "mha_fwd_bf16_nbias_mask_lse_ndropout" in found["module_mha_fwd"]
    assert len(found["module_mha_fwd"]) == 3 * 3 * 2 * 2 * 2
    pages = "mha_varlen_fwd_bf16_nlogits_nbias_mask_lse_pagedkv"
    assert pages in found["module_mha_varlen_fwd"]
    assert {*found} == {
        "module_mha_fwd",
        "module_mha_varlen_fwd",
        "module_mha_bwd",
        "module_mha_varlen_bwd",
        "module_mha_batch_prefill",
    }
