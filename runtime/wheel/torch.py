"""PyTorch functions for this package's libraries: attention on AMD GPUs, forward and backward.

`attention` has the interface of torch.nn.functional.scaled_dot_product_attention;
`attention_varlen` takes packed sequences. Both call the operators `torch.ops.<package>.mha_fwd` and
`.mha_bwd`, which support torch.compile and FakeTensor. The first call loads the libraries.
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
    """Compute attention like torch.nn.functional.scaled_dot_product_attention.

    Args:
        query: [batch, nhead_q, seqlen_q, hdim_q] with any strides, such as those of a transposed
            [batch, seqlen_q, nhead_q, hdim_q]. A tensor whose last stride is not 1 is copied; so
            are key and value.
        key: [batch, nhead_k, seqlen_k, hdim_q]. With enable_gqa, nhead_k is a divisor of nhead_q.
        value: [batch, nhead_k, seqlen_k, hdim_v]; hdim_v may differ if the library has kernels.
        attn_mask: booleans, True for visible keys, or a bias of query's dtype that is added to the
            scores; broadcast to [batch, nhead_q, seqlen_q, seqlen_k]. A bias may need a gradient.
        dropout_p: dropout probability, also applied outside of training; seeded by torch.randint.
        is_causal: causal mask from the top left, like torch; from the bottom right: window=(-1, 0).
        scale: factor of the scores; None: 1 / sqrt(hdim_q).
        enable_gqa: see key.
        alibi_slopes: float32 [nhead_q] or [batch, nhead_q].
        window: visible keys before and after the diagonal from the bottom right; -1: all.
        sink: float32 [nhead_q], an additional score in the softmax.
        logits_soft_cap: soft cap of the scores; forward only.
        return_lse: also return the log-sum-exp of the scores, float32 [batch, nhead_q, seqlen_q].
            It has no gradient.
        deterministic: compute bitwise reproducible gradients; None: torch's setting.

    Raises:
        RuntimeError: a tensor is not on an AMD GPU, or the library has no kernel for the problem.
        ValueError: shapes or dtypes are inconsistent.
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
    """Compute attention of packed sequences of different lengths.

    Arguments without a description, and errors, are those of `attention`. nhead_k may be a divisor
    of nhead_q.

    Args:
        query: [total_q, nhead_q, hdim_q], the concatenated sequences.
        key: [total_k, nhead_k, hdim_q].
        value: [total_k, nhead_k, hdim_v].
        cu_seqlens_q: int32 [batch + 1], the first index of each sequence in query, and total_q.
        cu_seqlens_k: int32 [batch + 1], the same for key.
        max_seqlen_q: length of the longest sequence in query.
        max_seqlen_k: length of the longest sequence in key.
        is_causal: causal mask from the bottom right of each sequence.
        alibi_slopes: float32 [nhead_q] or [batch, nhead_q].
        return_lse: also return the log-sum-exp, float32 [nhead_q, total_q].
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
    """Call the operator mha_fwd; `tensors` and `longest` are in the order of its arguments."""
    if window is not None and mask != _c.MASK_NONE:
        raise ValueError("is_causal and window: expected one of them; (left, 0) is causal")
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
        # Seed and offset, by an operation of torch: each replay of a graph draws new ones.
        rng = torch.randint(1 << 62, (2,), dtype=torch.int64, device=tensors[0].device)
    trained = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    numbers = (scale or 0.0, dropout_p, logits_soft_cap, deterministic, return_lse or trained)
    out, lse = OPS.mha_fwd(*tensors, rng, *longest, mask, left, right, *numbers)
    return (out, lse) if return_lse else out
