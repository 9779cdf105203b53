"""Attention of one sequence in float64, forward and backward, as CK and AITER define it.

Sources in CK: ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs.hpp (forward),
block_fmha_bwd_dq_dk_dv_pipeline_kr_ktr_vr.hpp and block_fmha_bwd_dot_do_o.hpp (backward),
variants.hpp (soft cap). How rounded the inputs are is the caller's choice.

Sizes in brackets: rows are positions of Q, columns those of K and V; heads are those of Q, and
heads_k, which divides them, those of K and V. Logits and LSE are natural logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qola.reference.dropout import Dropout
from qola.reference.formats import F64
from qola.reference.masks import NO_MASK, Mask, alibi


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
class Sequence:
    """The tensors of one sequence.

    Attributes:
        q: [rows, heads, hdim_q].
        k: [columns, heads_k, hdim_q].
        v: [columns, heads_k, hdim_v].
        bias: [heads or 1, rows, columns], added to the scaled scores; -inf hides a key.
        alibi_slopes: [heads].
        sink: [heads], the logit of a key without value that each query sees. AITER's 0.1.7 wheel
            has no such kernels.
        number: of the sequence in its batch, by which dropout counts.
    """

    q: F64
    k: F64
    v: F64
    bias: F64 | None = None
    alibi_slopes: F64 | None = None
    sink: F64 | None = None
    number: int = 0

    @property
    def heads(self) -> int:
        """Heads of Q."""
        return int(self.q.shape[1])

    def of_each_head(self, tensor: F64) -> F64:
        """Return K or V with a head for each of Q: a head of theirs serves neighbours of Q's."""
        result: F64 = np.repeat(tensor, self.heads // tensor.shape[1], axis=1)
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


def softmax(attention: Attention, of: Sequence, lse: F64 | None = None) -> Softmax:
    """Return P and its intermediates, with another LSE in place of its own for a backward."""
    rows, columns = len(of.q), len(of.k)
    scores = attention.softmax_scale * np.einsum("ihd,jhd->hij", of.q, of.of_each_head(of.k))
    logits, slope = scores, np.ones_like(scores)
    if attention.logits_soft_cap > 0:
        bent = np.tanh(scores / attention.logits_soft_cap)
        logits, slope = attention.logits_soft_cap * bent, 1 - bent**2
    if of.bias is not None:
        logits = logits + of.bias
    if of.alibi_slopes is not None:
        logits = logits + alibi(of.alibi_slopes, rows, columns, attention.mask)
    allowed = attention.mask.allowed(rows, columns)
    logits = np.where(allowed, logits, -np.inf)
    if lse is None:
        lse = _log_sum_exp(logits, of.sink)
    # A row without keys has nothing to normalize by: all of its P is 0.
    p = np.exp(logits - np.where(np.isneginf(lse), 0.0, lse)[..., None])
    if attention.dropout is None:
        factors = np.ones_like(p)
    else:
        factors = attention.dropout.factors(of.number, of.heads, rows, columns)
    return Softmax(scores, slope, logits, p, lse, factors, allowed)


def _log_sum_exp(logits: F64, sink: F64 | None) -> F64:
    if sink is not None:
        more = np.broadcast_to(sink[:, None, None], (*logits.shape[:2], 1))
        logits = np.concatenate([logits, more], axis=2)
    most = logits.max(axis=2, initial=-np.inf)
    base = np.where(np.isneginf(most), 0.0, most)
    with np.errstate(divide="ignore"):
        result: F64 = base + np.log(np.exp(logits - base[..., None]).sum(axis=2))
    return result


def forward(attention: Attention, of: Sequence) -> Forward:
    """Return O and LSE of a sequence."""
    steps = softmax(attention, of)
    o = np.einsum("hij,jhd->ihd", steps.p * steps.factors, of.of_each_head(of.v))
    return Forward(o, steps.lse)


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

    def results(self) -> Backward:
        """Return the gradients of the tensors."""
        of, inner = self.of, self.attention.softmax_scale * self.ds * self.steps.slope
        return Backward(
            dq=np.einsum("hij,jhd->ihd", inner, of.of_each_head(of.k)),
            dk=np.einsum("hij,ihd->jhd", inner, of.q),
            dv=np.einsum("hij,ihd->jhd", self.steps.p * self.steps.factors, self.do),
            dbias=self.ds,
        )


def gradients(
    attention: Attention, of: Sequence, do: F64, o: F64 | None = None, lse: F64 | None = None
) -> Gradients:
    """Return the steps of a backward; arguments are those of `backward`."""
    steps = softmax(attention, of, lse)
    if o is None:
        o = np.einsum("hij,jhd->ihd", steps.p * steps.factors, of.of_each_head(of.v))
    dp = np.einsum("ihd,jhd->hij", do, of.of_each_head(of.v))
    delta = np.einsum("ihd,ihd->hi", o, do)
    return Gradients(of, attention, do, steps, dp, delta)


def backward(
    attention: Attention, of: Sequence, do: F64, o: F64 | None = None, lse: F64 | None = None
) -> Backward:
    """Return the gradients of a sequence.

    Args:
        do: gradient of O, [rows, heads, hdim_v].
        o, lse: rounded results of a forward kernel, which backward kernels read; by default those
            of `forward`, which gives the true gradient.
    """
    return gradients(attention, of, do, o, lse).results()
