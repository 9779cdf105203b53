"""AITER's attention modules and functions, and the directions of kernels that they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionModule:
    """A C++ library of attention.

    Attributes:
        direction: its main direction, fwd or bwd; also that of its assembly (v3) kernels.
        header: AITER's header with its entry points, without suffix.
        asm_subdir: folder below AITER's hsa/<arch> with its assembly (v3) kernels.
    """

    direction: str
    header: str
    asm_subdir: str


ATTENTION = {
    "libmha_fwd": AttentionModule("fwd", "mha_fwd", "fmha_v3_fwd"),
    "libmha_bwd": AttentionModule("bwd", "mha_bwd", "fmha_v3_bwd"),
}
"""The attention libraries by module name."""

TORCH_ATTENTION = {
    "module_mha_fwd": "libmha_fwd",
    "module_mha_varlen_fwd": "libmha_fwd",
    "module_mha_batch_prefill": "libmha_fwd",
    "module_fmha_v3_fwd": "libmha_fwd",
    "module_fmha_v3_varlen_fwd": "libmha_fwd",
    "module_mha_bwd": "libmha_bwd",
    "module_mha_varlen_bwd": "libmha_bwd",
    "module_fmha_v3_bwd": "libmha_bwd",
    "module_fmha_v3_varlen_bwd": "libmha_bwd",
}
"""Attention modules for Python and PyTorch, with the library that has the same kernels."""


def is_assembly_alone(module: str) -> bool:
    """Return whether a torch module has only assembly (v3) kernels."""
    return module.startswith("module_fmha_v3_")


def is_attention(module: str) -> bool:
    """Return whether a module is an attention library or an attention module for PyTorch."""
    return module in ATTENTION or module in TORCH_ATTENTION


def attention_of(module: str) -> AttentionModule:
    """Return the library of an attention module."""
    return ATTENTION[TORCH_ATTENTION.get(module, module)]


ADDED = {"pagedkv_prefill": "mha_fwd_pagedkv", "fwd_appendkv": "mha_fwd_appendkv"}
"""qola's function for each direction that AITER has no function for."""

ENTRIES = {
    "fwd": "mha_fwd",
    "fwd_splitkv": "mha_fwd_splitkv",
    "batch_prefill": "mha_batch_prefill",
    **ADDED,
    "bwd": "mha_bwd",
}
"""The function that runs each direction: AITER's, in namespace aiter, or one of `ADDED`."""

MAIN_ROLE = {
    "fwd": "fwd",
    "fwd_splitkv": "splitkv",
    "batch_prefill": "batch_prefill",
    "pagedkv_prefill": "pagedkv",
    "fwd_appendkv": "appendkv",
    "bwd": "dq_dk_dv",
}
"""Role of the kernel instances that serve a direction's problems; others are helper kernels."""
