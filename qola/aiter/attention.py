"""The attention modules: the C++ libraries that AITER builds without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AttentionModule:
    """What belongs to one of them.

    Attributes:
        direction: its main one, fwd or bwd; also that of its assembly (v3) kernels.
        entry_source: qola's source of its entry points, without suffix.
        asm_subdir: folder below AITER's hsa/<arch> with its assembly (v3) kernels.
    """

    direction: str
    entry_source: str
    asm_subdir: str


ATTENTION = {
    "libmha_fwd": AttentionModule("fwd", "mha_fwd", "fmha_v3_fwd"),
    "libmha_bwd": AttentionModule("bwd", "mha_bwd", "fmha_v3_bwd"),
}
"""The attention modules by name."""
