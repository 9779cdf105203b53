"""Finds other kernels of an AITER tree for attention that Composable Kernel does not serve."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from qola.aiter.tree import AiterTree
from qola_lab.models.config import LayerAttention

#: AITER's Triton kernel for paged K and V, which compiles when it is called.
_UNIFIED = "aiter/ops/triton/unified_attention.py"
_UNIFIED_FUNCTION = "unified_attention"
#: AITER's module of MLA's decoding, and the directory of its code objects below hsa/<arch>.
_MLA_MODULE, _MLA_DIRECTORY = "module_mla_asm", "mla"


def find_alternatives(
    tree: AiterTree, attention: LayerAttention, phase: str, arch: str
) -> tuple[str, ...]:
    """Return modules and Triton functions of the tree for a phase, as text."""
    if phase == "latent":
        return tuple(_mla(tree, arch))
    return tuple(_unified(tree, attention))


def _mla(tree: AiterTree, arch: str) -> Iterator[str]:
    directory = tree.root / tree.hsa_dir / arch / _MLA_DIRECTORY
    count = len([*directory.rglob("*.co")])
    if count and _MLA_MODULE in tree.module_names():
        yield f"assembly: {_MLA_MODULE}, {count} code objects for {arch}, chosen by its host code"


def _unified(tree: AiterTree, attention: LayerAttention) -> Iterator[str]:
    if not (tree.root / _UNIFIED).is_file():
        return
    needed = {"sinks"} if attention.has_sink else set()
    needed |= {"window_size"} if attention.window else set()
    needed |= {"softcap"} if attention.logits_soft_cap else set()
    for node in ast.walk(tree.syntax_tree(_UNIFIED)):
        if isinstance(node, ast.FunctionDef) and node.name == _UNIFIED_FUNCTION:
            names = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            if needed <= names:
                yield f"Triton: {_UNIFIED} has its parameters, and compiles at run time"
