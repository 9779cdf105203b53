"""The attention modules: C++ libraries, and the torch modules that have the same kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionModule:
    """What belongs to one of them.

    Attributes:
        direction: its main one, fwd or bwd; also that of its assembly (v3) kernels.
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
"""The attention modules by name."""

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
"""Attention as modules that Python imports and that need PyTorch: the library that has a module's
kernel instances without it."""


def is_assembly_alone(module: str) -> bool:
    """Whether a torch module has assembly (v3) kernels and none of Composable Kernel's."""
    return module.startswith("module_fmha_v3_")


def is_attention(module: str) -> bool:
    """Whether a module is a library of attention, or a torch module of it."""
    return module in ATTENTION or module in TORCH_ATTENTION


def attention_of(module: str) -> AttentionModule:
    """Return what belongs to an attention module, or to the library of a torch module."""
    return ATTENTION[TORCH_ATTENTION.get(module, module)]


ADDED = {"pagedkv_prefill": "mha_fwd_pagedkv", "fwd_appendkv": "mha_fwd_appendkv"}
"""The function over Composable Kernel's own that runs a direction which AITER has none for."""

ENTRIES = {
    "fwd": "mha_fwd",
    "fwd_splitkv": "mha_fwd_splitkv",
    "batch_prefill": "mha_batch_prefill",
    **ADDED,
    "bwd": "mha_bwd",
}
"""The function that runs a direction: of AITER, in namespace aiter, or one of `ADDED`."""

MAIN_ROLE = {
    "fwd": "fwd",
    "fwd_splitkv": "splitkv",
    "batch_prefill": "batch_prefill",
    "pagedkv_prefill": "pagedkv",
    "fwd_appendkv": "appendkv",
    "bwd": "dq_dk_dv",
}
"""Role of the kernel instances that serve a direction's problems; others are helper kernels."""
