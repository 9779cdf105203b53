"""PyTorch operators over this package's libraries: attention on AMD GPUs, forward and backward.

`attention` is called as torch.nn.functional.scaled_dot_product_attention, `attention_varlen` with
sequences that lie behind each other. Both are `torch.ops.<package>.mha_fwd` and `.mha_bwd`, which
torch.compile and FakeTensor know. Libraries are loaded at the first call.
"""

from __future__ import annotations

import math
from typing import Any

from . import _c

try:
    import torch

    from ._operators import OPS
except ImportError as error:
    raise ImportError(f"{__name__} needs PyTorch 2.4 or later: {error}") from error

__all__ = ["attention", "attention_varlen"]


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    alibi_slopes: torch.Tensor | None = None,
    window: tuple[int, int] | None = None,
    sink: torch.Tensor | None = None,
    logits_soft_cap: float = 0.0,
    return_lse: bool = False,
    deterministic: bool | None = None,
) -> Any:
    """Return attention of [batch, head, row, dim], as scaled_dot_product_attention does.

    Args:
        query: any strides, such as those of a transposed [batch, row, head, dim]; without gaps in
            the last dimension, or it is copied. So are key and value.
        key: with enable_gqa it may have fewer heads, a divisor of query's.
        value: of as many heads as key, of another dimension where there are kernels for it.
        attn_mask: True where a key is seen, or a bias of query's dtype, added to the scores; it is
            broadcast to [batch, head, row of query, row of key]. A bias may need a gradient.
        dropout_p: applied whether or not anything is trained, seeded by torch.randint.
        is_causal: from the top left, as in torch; from the bottom right: window=(-1, 0).
        scale: 1 / sqrt(dim) where None.
        enable_gqa: see key.
        alibi_slopes: float32 [head] or [batch, head].
        window: keys that are seen before and after the diagonal from the bottom right; -1 is all.
        sink: float32 [head], a score that takes part in the softmax.
        logits_soft_cap: forward alone.
        return_lse: also return the log-sum-exp of the scores, float32 [batch, head, row]. It has no
            gradient.
        deterministic: gradients are the same bits on every run; None: as torch is set.

    Raises:
        RuntimeError: a tensor is on no AMD GPU, or no kernel of the library serves the problem.
        ValueError: shapes or types do not fit each other.
    """
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = attn_mask.logical_not()
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(hidden, -math.inf)
    if query.dim() == 4 and key.size(1) != query.size(1) and not enable_gqa:
        raise ValueError(f"key has {key.size(1)} heads, query {query.size(1)}: enable_gqa=True")
    return _attention(
        (query, key, value, attn_mask, alibi_slopes, sink, None, None),
        (0, 0),
        _c.MASK_CAUSAL_TOP_LEFT if is_causal else _c.MASK_NONE,
        window=window,
        scale=scale,
        dropout_p=dropout_p,
        logits_soft_cap=logits_soft_cap,
        return_lse=return_lse,
        deterministic=deterministic,
    )


def attention_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    alibi_slopes: torch.Tensor | None = None,
    window: tuple[int, int] | None = None,
    sink: torch.Tensor | None = None,
    logits_soft_cap: float = 0.0,
    return_lse: bool = False,
    deterministic: bool | None = None,
) -> Any:
    """Return attention of sequences that lie behind each other, [row, head, dim].

    What is not said here is as `attention` has it. Key and value may have fewer heads.

    Args:
        query: the rows of all sequences.
        key: theirs, of other lengths where cu_seqlens_k says so.
        value: as key.
        cu_seqlens_q: int32 [sequences + 1], the first row of each sequence, and their number.
        cu_seqlens_k: the same of key.
        max_seqlen_q: rows of the longest sequence.
        max_seqlen_k: the same of key.
        dropout_p: see attention.
        is_causal: from the bottom right of each sequence.
        scale: see attention.
        alibi_slopes: float32 [head] or [sequence, head].
        window: see attention.
        sink: see attention.
        logits_soft_cap: see attention.
        return_lse: also return the log-sum-exp, float32 [head, row].
        deterministic: see attention.
    """
    return _attention(
        (query, key, value, None, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k),
        (max_seqlen_q, max_seqlen_k),
        _c.MASK_CAUSAL_BOTTOM_RIGHT if is_causal else _c.MASK_NONE,
        window=window,
        scale=scale,
        dropout_p=dropout_p,
        logits_soft_cap=logits_soft_cap,
        return_lse=return_lse,
        deterministic=deterministic,
    )


def _attention(
    tensors: tuple[torch.Tensor | None, ...],
    longest: tuple[int, int],
    mask: int,
    *,
    window: tuple[int, int] | None,
    scale: float | None,
    dropout_p: float,
    logits_soft_cap: float,
    return_lse: bool,
    deterministic: bool | None,
) -> Any:
    """Call the operator; `tensors` and what follows stand in its order."""
    if window is not None and mask != _c.MASK_NONE:
        raise ValueError("is_causal beside window: expected one of them; (left, 0) is causal")
    if scale == 0:
        raise ValueError("scale: 0, expected another number, or None for 1 / sqrt(dim)")
    left, right = window or (-1, -1)
    if (left, right) != (-1, -1):
        mask = _c.MASK_WINDOW_BOTTOM_RIGHT
    else:
        left = right = 0
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    rng = None
    if dropout_p and tensors[0] is not None:
        # Seed and offset. An operation of torch's own: graphs replay it, and keep calls apart.
        rng = torch.randint(1 << 62, (2,), dtype=torch.int64, device=tensors[0].device)
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    numbers = (scale or 0.0, dropout_p, logits_soft_cap, deterministic, return_lse or trained)
    out, lse = OPS.mha_fwd(*tensors, rng, *longest, mask, left, right, *numbers)
    return (out, lse) if return_lse else out
