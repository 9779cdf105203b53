"""The modules that functions of AITER's Python call, and the names of their variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter.called_modules import called_modules, variant_names
from qola.aiter.tree import read_tree
from qola.query.serving import SERVERS, read_server
from qola_base.errors import AiterError
from tests.support.folders import write
from tests.support.later_tree import write_later_tree

OPS = """
from ..jit.core import compile_ops
import aiter

MD_NAME = "module_sort"

@compile_ops("module_quant")
def quant(x): ...

@compile_ops(MD_NAME)
def sort(x): ...

@compile_ops("module_other")
def other(x): ...

def stage(x):
    return aiter.quant(sort(x))

def fused_moe(x):
    return stage(x)

class Gemm:
    def mm(self, x):
        return other(x)

gemm = Gemm()
"""


def test_calls_are_followed(tmp_path: Path) -> None:
    """Prevents: a manifest lacks a module that a function calls through other functions."""
    root = write(write_later_tree(tmp_path), {"aiter/ops/moe.py": OPS})
    assert called_modules(read_tree(root), ["fused_moe", "gemm", "quant", "absent"]) == {
        "module_other": ("gemm",),
        "module_quant": ("fused_moe", "quant"),
        "module_sort": ("fused_moe",),
    }


def test_syntax_of_a_later_python(tmp_path: Path) -> None:
    """Prevents: syntax of a later Python causes a traceback, or qola silently misses modules."""
    text = 'md_name = ""\n@compile_ops("module_quant")\ndef quant(x) later: ...\n'
    tree = read_tree(write(write_later_tree(tmp_path), {"aiter/ops/moe.py": text}))
    for find_modules in (variant_names, lambda tree: called_modules(tree, ["quant"])):
        with pytest.raises(AiterError) as caught:
            find_modules(tree)
        assert caught.value.findings[0].place == "aiter/ops/moe.py:3"


def test_servers_call_modules_of_the_wheel(aiter_tree: Path) -> None:
    """Prevents: the list of modules that a server calls is empty or contains the whole wheel."""
    tree = read_tree(aiter_tree)
    found = {name: called_modules(tree, read_server(name).functions) for name in SERVERS}
    both = {"module_rmsnorm", "module_moe_asm", "module_mha_varlen_fwd", "module_mla_asm"}
    assert all(both <= modules.keys() for modules in found.values())
    assert "module_mla_metadata" in found["sglang"]
    assert "module_attention_asm" in found["vllm"]
    assert all(20 <= len(modules) <= 30 for modules in found.values())


VARIANTS = """
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
    root = write(write_later_tree(tmp_path), {"aiter/ops/mha.py": VARIANTS})
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
