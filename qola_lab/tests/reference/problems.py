"""Random problems for tests of the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from qola_base.formats import F64, Format, rounded
from qola_lab.reference.attention import Attention, Sequence
from qola_lab.reference.dropout import Dropout
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask


def sequence(
    generator: np.random.Generator,
    rows: int,
    columns: int,
    heads: int = 2,
    heads_k: int = 1,
    hdim_q: int = 8,
    hdim_v: int = 8,
    format_: Format | None = None,
    **more: Any,
) -> Sequence:
    """Return tensors of normally distributed numbers, rounded to a format."""

    def random_tensor(*size: int) -> F64:
        values = generator.normal(size=size)
        return values if format_ is None else rounded(values, format_)

    q, k = random_tensor(rows, heads, hdim_q), random_tensor(columns, heads_k, hdim_q)
    return Sequence(q, k, random_tensor(columns, heads_k, hdim_v), **more)


@st.composite
def masks(draw: st.DrawFn, longest: int) -> Mask:
    """Draw no mask, a causal mask or a window."""
    left, right = draw(st.integers(-1, longest)), draw(st.integers(-1, longest))
    windows = [Mask("top_left", left, right), Mask("bottom_right", left, right)]
    return draw(st.sampled_from([NO_MASK, TOP_LEFT, BOTTOM_RIGHT, *windows]))


@st.composite
def problems(draw: st.DrawFn, longest: int = 12) -> tuple[Attention, Sequence]:
    """Draw small problems with all features of the reference."""
    rows, columns = draw(st.integers(1, longest)), draw(st.integers(1, longest))
    heads_k = draw(st.sampled_from([1, 2, 3]))
    heads = heads_k * draw(st.sampled_from([1, 2, 4]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    hdim_q, hdim_v = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    fields: dict[str, Any] = {}
    bias = draw(st.sampled_from(["no", "bias", "hiding", "alibi"]))
    if bias == "alibi":
        fields["alibi_slopes"] = generator.uniform(0, 1, heads)
    elif bias != "no":
        fields["bias"] = generator.normal(size=(draw(st.sampled_from([1, heads])), rows, columns))
        if bias == "hiding":
            fields["bias"][generator.random(fields["bias"].shape) < 0.2] = -np.inf
    if draw(st.booleans()):
        fields["sink"] = generator.normal(size=heads)
    drop = draw(st.sampled_from([0.0, 0.0, 0.1, 0.5]))
    attention = Attention(
        softmax_scale=draw(st.sampled_from([1.0, hdim_q**-0.5, 0.3])),
        mask=draw(masks(longest)),
        logits_soft_cap=draw(st.sampled_from([0.0, 0.0, 3.0])),
        dropout=Dropout(drop, draw(st.integers(0, 2**64 - 1)), 5) if drop else None,
    )
    fields["number"] = draw(st.integers(0, 3))
    return attention, sequence(generator, rows, columns, heads, heads_k, hdim_q, hdim_v, **fields)
