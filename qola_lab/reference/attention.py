"""Attention of one sequence in float64, forward and backward, as CK and AITER define it.

Sources in CK: ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp (forward),
block_fmha_bwd_dq_dk_dv_pipeline_kr_ktr_vr.hpp and block_fmha_bwd_dot_do_o.hpp (backward),
variants.hpp (soft cap). How rounded the inputs are is the caller's choice.

Sizes in brackets: rows are positions of Q, columns those of K and V; heads are those of Q, and
heads_k, which divides them, those of K and V. Logits and LSE are natural logarithms.

Arrays of heads, rows and columns exist for a part of the heads and rows at a time, which stays in
the processor's cache (`Sequence.parts`); BLAS computes all products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64
from qola_lab.reference.dropout import Dropout
from qola_lab.reference.masks import EVERY, NO_MASK, Mask, alibi

#: Elements of P that are computed together, and rows, of which dropout draws that many at once.
_TOGETHER = 1 << 18
_ROWS = 32


@dataclass(frozen=True)
class Attention:
    """The function of the tensors.

    Attributes:
        softmax_scale: factor of Q K^T, usually 1 / sqrt(hdim_q).
        logits_soft_cap: c of the logits c tanh(x / c), taken before the bias; 0 for none.
    """

    softmax_scale: float
    mask: Mask = NO_MASK
    logits_soft_cap: float = 0.0
    dropout: Dropout | None = None


@dataclass(frozen=True)
class Part:
    """Some heads and rows of Q.

    Attributes:
        all_heads, all_rows: of the whole sequence.
    """

    heads: slice
    rows: slice
    all_heads: int
    all_rows: int


@dataclass(frozen=True)
class Sequence:
    """The tensors of one sequence, or of a part of it.

    Attributes:
        q: [rows, heads, hdim_q].
        k: [columns, heads_k, hdim_q].
        v: [columns, heads_k, hdim_v].
        bias: [heads or 1, rows, columns], added to the scaled scores; -inf hides a key.
        alibi_slopes: [heads].
        sink: [heads], the logit of a key without value that each query sees. AITER's 0.1.7 wheel
            has no such kernels.
        number: of the sequence in its batch, by which dropout counts.
        part: the heads and rows that the tensors have; None for all.
    """

    q: F64
    k: F64
    v: F64
    bias: F64 | None = None
    alibi_slopes: F64 | None = None
    sink: F64 | None = None
    number: int = 0
    part: Part | None = None

    @property
    def heads(self) -> int:
        """Heads of Q."""
        return int(self.q.shape[1])

    @property
    def place(self) -> Part:
        """The heads and rows that the tensors have."""
        return self.part or Part(EVERY, EVERY, self.heads, len(self.q))

    def parts(self) -> Iterator[tuple[Part, Sequence]]:
        """Yield parts that are computed one after the other; each has all columns."""
        heads, rows, columns = self.heads, len(self.q), len(self.k)
        ratio = heads // self.k.shape[1]
        fitting = _TOGETHER // max(1, rows * columns)
        # A head of K for all heads of a part, or whole groups of heads.
        heads_at_once = heads if fitting >= heads else fitting // ratio * ratio or 1
        fitting = _TOGETHER // max(1, heads_at_once * columns)
        rows_at_once = rows if fitting >= rows else max(_ROWS, fitting // _ROWS * _ROWS)
        for first in range(0, heads, heads_at_once):
            own = slice(first, min(first + heads_at_once, heads))
            heads_k = slice(first // ratio, -(-own.stop // ratio))
            k, v = (_heads_together(x[:, heads_k]) for x in (self.k, self.v))
            for row in range(0, max(1, rows), max(1, rows_at_once)):
                part = Part(own, slice(row, min(row + rows_at_once, rows)), heads, rows)
                yield part, self._of_part(part, k, v)

    def _of_part(self, part: Part, k: F64, v: F64) -> Sequence:
        q = self.q[part.rows, part.heads]
        bias, slopes, sink = self.bias, self.alibi_slopes, self.sink
        if bias is not None:
            bias = bias[EVERY if len(bias) == 1 else part.heads, part.rows]
        slopes = None if slopes is None else slopes[part.heads]
        sink = None if sink is None else sink[part.heads]
        return Sequence(q, k, v, bias, slopes, sink, self.number, part)

    def of_each_head(self, tensor: F64) -> F64:
        """Return K or V with a head for each of Q: a head of theirs serves neighbours of Q's."""
        length, heads, hdim = tensor.shape
        if heads == self.heads:
            return tensor
        result: F64 = (
            np.broadcast_to(tensor, (length, self.heads, hdim))
            if heads == 1
            else np.repeat(tensor, self.heads // heads, axis=1)
        )
        return result


@dataclass(frozen=True)
class Softmax:
    """The way from Q and K to P.

    Attributes:
        scores: scale Q K^T, [heads, rows, columns].
        slope: d logits / d scores, 1 without a soft cap.
        logits: with soft cap and bias, -inf where a key is not seen.
        p: exp(logits - lse), 0 in a row without keys.
        lse: logarithm of the sum of exp(logits), -inf in a row without keys, [heads, rows].
        factors: factors of dropout on P, 1 without it.
        allowed: keys that the mask lets a query see, [rows, columns].
    """

    scores: F64
    slope: F64
    logits: F64
    p: F64
    lse: F64
    factors: F64
    allowed: NDArray[np.bool_]

    @cached_property
    def kept(self) -> F64:
        """P after dropout."""
        # A view of a single 1 without dropout.
        return self.p * self.factors if any(self.factors.strides) else self.p


@dataclass(frozen=True)
class Forward:
    """Results of a forward.

    Attributes:
        o: [rows, heads, hdim_v]; 0 in a row without keys.
        lse: [heads, rows], the sink's share included.
    """

    o: F64
    lse: F64


@dataclass(frozen=True)
class Backward:
    """Results of a backward.

    Attributes:
        dq: [rows, heads, hdim_q].
        dk: [columns, heads, hdim_q], for each head of Q, as kernels write it.
        dv: [columns, heads, hdim_v], likewise.
        dbias: gradient of the logits, [heads, rows, columns].
    """

    dq: F64
    dk: F64
    dv: F64
    dbias: F64


def summed_up(gradient: F64, heads_k: int) -> F64:
    """Sum a gradient of K or V up over the heads of Q that share one, as AITER's callers do."""
    columns, heads, hdim = gradient.shape
    result: F64 = gradient.reshape(columns, heads_k, heads // heads_k, hdim).sum(axis=2)
    return result


def _heads_together(tensor: F64) -> F64:
    """Return a tensor whose rows of a head lie side by side in memory."""
    result: F64 = np.ascontiguousarray(tensor.transpose(1, 0, 2)).transpose(1, 0, 2)
    return result


def pairs(q: F64, k: F64) -> F64:
    """Return the products of rows of two tensors, [heads, rows, columns]."""
    result: F64 = np.matmul(q.transpose(1, 0, 2), k.transpose(1, 2, 0))
    return result


def over_columns(weights: F64, tensor: F64) -> F64:
    """Return the weighted sums of a tensor's columns, [rows, heads, hdim]."""
    result: F64 = np.matmul(weights, tensor.transpose(1, 0, 2)).transpose(1, 0, 2)
    return result


def over_rows(weights: F64, tensor: F64) -> F64:
    """Return the weighted sums of a tensor's rows, [columns, heads, hdim]."""
    return over_columns(weights.transpose(0, 2, 1), tensor)


def softmax(attention: Attention, of: Sequence, lse: F64 | None = None) -> Softmax:
    """Return P and its intermediates, with another LSE in place of its own for a backward."""
    place, columns = of.place, len(of.k)
    scores = pairs(of.q, of.of_each_head(of.k))
    scores *= attention.softmax_scale
    ones: F64 = np.broadcast_to(1.0, scores.shape)
    logits, slope = scores, ones
    if attention.logits_soft_cap > 0:
        bent = np.tanh(scores / attention.logits_soft_cap)
        logits, slope = attention.logits_soft_cap * bent, 1 - bent**2
    if of.bias is not None:
        logits = logits + of.bias
    if of.alibi_slopes is not None:
        rows = place.all_rows, columns, attention.mask, place.rows
        logits = logits + alibi(of.alibi_slopes, *rows)
    allowed = attention.mask.allowed(place.all_rows, columns, place.rows)
    if attention.mask.mask_type != "no":
        logits = np.where(allowed, logits, -np.inf)
    if lse is None:
        p, lse = _normalize(logits, of.sink)
    else:
        # A row without keys has nothing to normalize by: all of its P is 0.
        p = logits - np.where(np.isneginf(lse), 0.0, lse)[..., None]
        np.exp(p, out=p)
    factors = ones
    if attention.dropout is not None:
        sizes = of.number, place.all_heads, place.all_rows, columns
        factors = attention.dropout.factors(*sizes, (place.heads, place.rows))
    return Softmax(scores, slope, logits, p, lse, factors, allowed)


def _normalize(logits: F64, sink: F64 | None) -> tuple[F64, F64]:
    """Return P and the logarithm of the sums that it is divided by."""
    most = logits.max(axis=2, initial=-np.inf)
    if sink is not None:
        most = np.maximum(most, sink[:, None])
    base = np.where(np.isneginf(most), 0.0, most)
    p = logits - base[..., None]
    np.exp(p, out=p)
    total: F64 = p.sum(axis=2)
    if sink is not None:
        total += np.exp(sink[:, None] - base)
    # A row without keys has nothing to normalize by: all of its P is 0.
    p /= np.where(total == 0, 1.0, total)[..., None]
    with np.errstate(divide="ignore"):
        return p, base + np.log(total)


def forward(attention: Attention, of: Sequence) -> Forward:
    """Return O and LSE of a sequence."""
    o, lse = np.empty((*of.q.shape[:2], of.v.shape[2])), np.empty(of.q.shape[1::-1])
    for part, own in of.parts():
        steps = softmax(attention, own)
        o[part.rows, part.heads] = over_columns(steps.kept, own.of_each_head(own.v))
        lse[part.heads, part.rows] = steps.lse
    return Forward(o, lse)


@dataclass(frozen=True)
class Gradients:
    """The way from dO to the gradients.

    Attributes:
        steps: the softmax that P comes from.
        dp: dO V^T, [heads, rows, columns].
        delta: sums of O dO over hdim_v, without dropout's factor, [heads, rows].
    """

    of: Sequence
    attention: Attention
    do: F64
    steps: Softmax
    dp: F64
    delta: F64

    @cached_property
    def ds(self) -> F64:
        """Gradient of the logits, [heads, rows, columns]."""
        steps = self.steps
        result: F64 = steps.p * (steps.factors * self.dp - self.delta[..., None])
        return result

    @property
    def inner(self) -> F64:
        """Gradient of the scores, [heads, rows, columns]."""
        return self.ds * self.steps.slope


def gradients(
    attention: Attention, of: Sequence, do: F64, o: F64 | None = None, lse: F64 | None = None
) -> Gradients:
    """Return the steps of a backward; arguments are those of `backward`."""
    steps = softmax(attention, of, lse)
    v = of.of_each_head(of.v)
    if o is None:
        o = over_columns(steps.kept, v)
    delta = np.einsum("ihd,ihd->hi", o, do)
    return Gradients(of, attention, do, steps, pairs(do, v), delta)


def gradients_by_part(
    attention: Attention, of: Sequence, do: F64, o: F64 | None, lse: F64 | None
) -> Iterator[tuple[Part, Gradients]]:
    """Yield the steps of a backward for each part; arguments are those of `backward`."""
    for part, own in of.parts():
        stored_o = None if o is None else o[part.rows, part.heads]
        stored_lse = None if lse is None else lse[part.heads, part.rows]
        own_do = do[part.rows, part.heads]
        yield part, gradients(attention, own, own_do, stored_o, stored_lse)


def backward(
    attention: Attention, of: Sequence, do: F64, o: F64 | None = None, lse: F64 | None = None
) -> Backward:
    """Return the gradients of a sequence.

    Args:
        do: gradient of O, [rows, heads, hdim_v].
        o, lse: rounded results of a forward kernel, which backward kernels read; by default those
            of `forward`, which gives the true gradient.
    """
    columns, heads, scale = len(of.k), of.heads, attention.softmax_scale
    dq, dbias = np.empty(of.q.shape), np.empty((heads, len(of.q), columns))
    dk, dv = (np.zeros((columns, heads, x.shape[2])) for x in (of.q, of.v))
    for part, steps in gradients_by_part(attention, of, do, o, lse):
        own, inner = steps.of, scale * steps.inner
        dq[part.rows, part.heads] = over_columns(inner, own.of_each_head(own.k))
        dk[:, part.heads] += over_rows(inner, own.q)
        dv[:, part.heads] += over_rows(steps.steps.kept, steps.do)
        dbias[part.heads, part.rows] = steps.ds
    return Backward(dq, dk, dv, dbias)
