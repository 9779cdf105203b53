"""Samples problems that append to K and V, for the fields of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from qola.attention import AttentionProblem, Layout, TestData
from qola.reference.masks import BOTTOM_RIGHT, NO_MASK
from qola.verify.case import Sample
from qola.verify.edges import HEADS, MODEL_HEADS, Fields, head_dims, lengths

#: Rows of a tile of Q, and of K.
_ROWS = 64
#: Rows of a page, as Composable Kernel's own callers have them.
_PAGE = 128
_HEADS = HEADS[:4]
#: Dimensions that are rotated are a multiple of it.
_ROTARY = 16


def propose(
    fields: Fields, edge: int, chosen: np.random.Generator, *, many: bool = False
) -> Sample:
    """Return a problem near the sizes in a kernel's fields.

    Args:
        edge: which lengths: 0 has whole tiles and the kernel's head dimension.
        chosen: random generator for all other choices.
        many: with the head counts of models and few rows.
    """

    def one(of: Sequence[int]) -> int:
        return of[int(chosen.integers(len(of)))]

    every = [length for length in lengths(_ROWS) if length <= _ROWS or not many]
    new = every[edge % len(every)]
    rows = new if edge == 0 or chosen.random() < 0.3 else one(every)
    if not fields.get("spad"):
        rows = -(-rows // _ROWS) * _ROWS
    size = int(fields.get("hdim_q") or 0)
    hdim = size if edge == 0 or chosen.random() < 0.5 else one(head_dims(size))
    rope = str(fields.get("rope") or "no")
    rotary = 0
    if rope != "no":
        most = hdim // _ROTARY
        if most == 0:
            hdim, most = size, size // _ROTARY
        rotary = _ROTARY * (most if edge == 0 else one(range(1, most + 1)))
    heads = MODEL_HEADS if many else _HEADS
    nhead_q, nhead_k = heads[int(chosen.integers(len(heads)))]
    # Rows that are there before: none, up to a page, and beyond.
    before = [one((0, 1, _ROWS, 77, _PAGE - 3, _PAGE, _PAGE + 40)) for _ in range(1 + edge % 2)]
    hdim_v = hdim if chosen.random() < 0.5 else one(head_dims(size))
    mask = BOTTOM_RIGHT if chosen.random() < 0.5 else NO_MASK
    order = "bhsd" if chosen.random() < 0.3 else "bshd"
    row_padding = one((0, 0, 8, 64))
    seed = int(chosen.integers(1 << 32))
    return Sample(
        AttentionProblem(
            direction="fwd_appendkv",
            dtype=str(fields.get("dtype")),
            hdim_q=hdim,
            hdim_v=hdim_v,
            seqlen_q=(rows,) * len(before),
            seqlen_k=tuple(place + new for place in before),
            nhead_q=nhead_q,
            nhead_k=nhead_k,
            softmax_scale=1.0,
            **asdict(mask),
            seqlen_knew=new,
            rope_type=rope,
            rotary_dim=rotary,
            layout=Layout(order, row_padding, _PAGE if fields.get("pagedkv") else 0, seed),
        ),
        TestData(seed=seed),
    )
