"""The attention modules: the C++ libraries that AITER builds without PyTorch."""

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

ENTRIES = {
    "fwd": "mha_fwd",
    "fwd_splitkv": "mha_fwd_splitkv",
    "batch_prefill": "mha_batch_prefill",
    "bwd": "mha_bwd",
}
"""The function of AITER, in namespace aiter, that runs a direction."""
