"""The modules that functions of AITER's Python code call."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter.called_modules import called_modules
from qola.aiter.tree import read_tree
from qola.aiter.variant_names import variant_names
from qola.query.serving import SERVERS, read_server
from qola_base.errors import AiterError
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
    root = write_later_tree(tmp_path)
    (root / "aiter/ops").mkdir()
    (root / "aiter/ops/moe.py").write_text(OPS, "utf-8")
    assert called_modules(read_tree(root), ["fused_moe", "gemm", "quant", "absent"]) == {
        "module_other": ("gemm",),
        "module_quant": ("fused_moe", "quant"),
        "module_sort": ("fused_moe",),
    }


def test_syntax_of_a_later_python(tmp_path: Path) -> None:
    """Prevents: syntax of a later Python causes a traceback, or qola silently misses modules."""
    root = write_later_tree(tmp_path)
    (root / "aiter/ops").mkdir()
    text = 'md_name = ""\n@compile_ops("module_quant")\ndef quant(x) later: ...\n'
    (root / "aiter/ops/moe.py").write_text(text, "utf-8")
    tree = read_tree(root)
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
