"""Makes the attention problems that a server passes for a layer of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qola_lab.models.config import LayerAttention
from qola_lab.problems import AttentionProblem, make_problem

PAGE_BLOCK_SIZE = 128
"""Rows of a page: Composable Kernel's split-KV kernels take multiples of it."""

#: Lengths of Q, and of K and V, of two sequences: long and short ones.
_PREFILL = (([4096, 1000], [4096, 1000]), ([100, 37], [100, 37]))
_PAGED = (([1, 1], [4096, 1000]), ([100, 37], [4096, 1000]))
_DECODE = (([1, 1], [4096, 1000]),)


@dataclass(frozen=True)
class Phase:
    """A use of a layer's attention in a server.

    Attributes:
        name: prefill (K and V of the same step), context (K and V of earlier steps, merged by the
            LSE), paged (decoding, and prefill in chunks, over a cache in pages) or latent (decoding
            over MLA's compressed cache).
        problems: for long and for short sequences.
    """

    name: str
    problems: tuple[AttentionProblem, ...]


def phases_of(attention: LayerAttention, dtype: str) -> tuple[Phase, ...]:
    """Return the phases of a layer, with problems in the data type of its activations."""
    if attention.latent is None:
        return (
            Phase("prefill", tuple(_problems("fwd", _PREFILL, attention, dtype))),
            Phase("paged", tuple(_problems("fwd_splitkv", _PAGED, attention, dtype))),
        )
    context = {"return_lse": True, "mask_type": "no", "window_size_right": -1}
    return (
        Phase("prefill", tuple(_problems("fwd", _PREFILL, attention, dtype))),
        Phase("context", tuple(_problems("fwd", _PAGED[1:], attention, dtype, **context))),
        Phase("latent", tuple(_latent_problems(attention, dtype))),
    )


def _problems(
    direction: str,
    lengths: tuple[tuple[list[int], list[int]], ...],
    attention: LayerAttention,
    dtype: str,
    **more: Any,
) -> Iterator[AttentionProblem]:
    """Yield causal problems; with `more`, other fields of them."""
    fields: dict[str, Any] = {
        "mask_type": "bottom_right",
        # A window of n keys contains the query's own.
        "window_size_left": attention.window - 1,
        "window_size_right": 0,
        "has_sink": attention.has_sink,
        "logits_soft_cap": attention.logits_soft_cap,
        "use_asm": direction == "fwd",
    }
    if direction == "fwd_splitkv":
        fields["page_block_size"] = PAGE_BLOCK_SIZE
    for seqlen_q, seqlen_k in lengths:
        yield make_problem(
            *(direction, dtype),
            hdim=(attention.hdim_q, attention.hdim_v),
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            nhead_q=attention.nhead_q,
            nhead_k=attention.nhead_k,
            **fields | more,
        )


def _latent_problems(attention: LayerAttention, dtype: str) -> Iterator[AttentionProblem]:
    latent = attention.latent
    if latent is None:
        return
    absorbed = LayerAttention(attention.nhead_q, 1, latent.hdim_q, latent.hdim_v)
    yield from _problems("fwd_splitkv", _DECODE, absorbed, dtype)
