"""How far a kernel's results may be from the reference: docs/internals/tolerances.md derives it.

A limit is a number for each element of a result of given tensors, which no rounding exceeds. It is
of first order, with a share more for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qola_base.formats import F64, FP32, Format, Rounding
from qola_lab.reference.attention import (
    Attention,
    Backward,
    Forward,
    Sequence,
    Softmax,
    gradients_by_part,
    over_columns,
    over_rows,
    pairs,
    softmax,
)

#: Unit roundoff of float32, and of an accumulator of matrix instructions, which may truncate.
_U = 2.0**-24
_U_SUM = 2.0**-23
#: Roundings, in units of _U, of: exp2 and the sum of its argument; a soft cap's tanh; log and 1/x.
_EXP, _TANH, _LOG = 4, 16, 4
#: Of the last factors of a result, and of these factors.
_SCALING = 4
#: Below it, float32 may become 0: exp2 of the hardware has no smaller results.
_FLUSHED = 2.0**-126


@dataclass(frozen=True)
class Arithmetic:
    """The formats and roundings of a kernel; sums are float32.

    Attributes:
        low: format of the operands of matrix instructions: of P, and of the gradient of logits.
        out: format of O and of the gradients.
        low_rounding, out_rounding: how float32 becomes these.
        tile: columns (forward, dQ) or rows (dK, dV) that a kernel takes at once, at least.
        dq_sum: format in which the shares of dQ are added up.
    """

    low: Format
    out: Format
    low_rounding: Rounding = "nearest_even"
    out_rounding: Rounding = "nearest_even"
    tile: int = 16
    dq_sum: Format = FP32

    @property
    def low_unit(self) -> float:
        """Largest relative error of an operand."""
        return self.low.unit(self.low_rounding)

    @property
    def low_step(self) -> float:
        """Largest absolute error of an operand below the normal numbers."""
        return self.low.step(self.low_rounding) + _FLUSHED

    def limit(self, error: F64, exact: F64, *, rounds: bool = True) -> F64:
        """Return the limit of a result from its error before it is rounded to `out`."""
        # Products of errors, which first order leaves out.
        error = error / (1 - 4 * self.low_unit)
        unit, step = _SCALING * _U, _FLUSHED
        if rounds:
            unit += self.out.unit(self.out_rounding)
            step += self.out.step(self.out_rounding)
        result: F64 = error + (np.abs(exact) + error) * unit + step
        return result


def _logit_errors(attention: Attention, of: Sequence, steps: Softmax, k: F64) -> tuple[F64, F64]:
    """Return absolute errors of logits, and sizes of logits, 0 where they are infinite.

    Errors of hidden logits have no meaning: their P is 0.

    Args:
        k: absolute values of K, for each head of Q.
    """
    error = pairs(np.abs(of.q), k)
    error *= attention.softmax_scale * of.q.shape[2] * _U_SUM
    capped = attention.logits_soft_cap > 0
    if capped:
        error *= steps.slope
        error += _TANH * _U * attention.logits_soft_cap
    size = np.abs(steps.logits)
    size[np.isinf(size)] = 0.0
    scores = np.abs(steps.scores)
    if capped:
        error += _U * 4 * size
    elif steps.logits is not steps.scores:
        with np.errstate(invalid="ignore"):
            added = np.abs(steps.logits - steps.scores)
        added[np.isinf(added)] = 0.0
        error += _U * 4 * added
    scores *= 3 * _U
    error += scores
    error += 2 * _U * size
    return error, size


def _rescalings(logits: F64) -> F64:
    """Return how often the largest logit of a row changes from left to right, [heads, rows]."""
    if logits.shape[2] < 2:
        return np.zeros(logits.shape[:2])
    running = np.maximum.accumulate(logits, axis=2)
    changed = running[..., 1:] > running[..., :-1]
    result: F64 = np.count_nonzero(changed, axis=2).astype(np.float64)
    return result


def forward_with_limits(
    attention: Attention, of: Sequence, arithmetic: Arithmetic
) -> tuple[Forward, Forward]:
    """Return O and LSE of a sequence, and the limits of their errors."""
    columns = len(of.k)
    found, limits = (
        Forward(np.empty((*of.q.shape[:2], of.v.shape[2])), np.empty(of.q.shape[1::-1]))
        for _ in range(2)
    )
    heads: slice | None = None
    for part, own in of.parts():
        if part.heads != heads:
            heads = part.heads
            v = own.of_each_head(own.v)
            size_of_k, size_of_v = np.abs(own.of_each_head(own.k)), np.abs(v)
        steps = softmax(attention, own)
        o = over_columns(steps.kept, v)
        relative, size = _logit_errors(attention, own, steps, size_of_k)
        most = size.max(axis=2, initial=0.0)
        # Each change of the largest logit multiplies the sum by an exp2.
        changes = _rescalings(steps.logits) + 1
        size *= 2 * _U
        relative += size
        relative += _U * (2 * most + changes * (2 * most + _EXP) + _EXP)[..., None]
        norm = np.einsum("hij,hij->hi", steps.p, relative) + columns * _U
        # P is off and rounded, and the sum is.
        relative += columns * _U_SUM + arithmetic.low_unit
        relative *= steps.kept
        moved = over_columns(relative, size_of_v)
        largest = steps.p.max(axis=2, initial=0.0).T[..., None]
        lost = arithmetic.low_step * largest * size_of_v.sum(axis=0)
        of_o = moved + lost + np.abs(o) * (norm.T[..., None] + _LOG * _U)
        lse = np.where(np.isfinite(steps.lse), steps.lse, 0.0)
        of_lse = norm + _LOG * _U * (1 + 2 * most + np.abs(lse))
        found.o[part.rows, part.heads] = o
        found.lse[part.heads, part.rows] = steps.lse
        limits.o[part.rows, part.heads] = arithmetic.limit(of_o, o)
        limits.lse[part.heads, part.rows] = arithmetic.limit(of_lse, lse, rounds=False)
    return found, limits


def backward_with_limits(
    attention: Attention,
    of: Sequence,
    do: F64,
    left: Forward,
    arithmetic: Arithmetic,
    *,
    dbias: bool = True,
) -> tuple[Backward, Backward]:
    """Return the gradients of a sequence, and the limits of their errors.

    Args:
        do: gradient of O, [rows, heads, hdim_v].
        left: O and LSE as the kernel reads them.
        dbias: whether the gradient of the logits is needed; without, it is empty.
    """
    columns, rows, heads = len(of.k), len(of.q), of.heads
    scale = attention.softmax_scale
    shape = (heads, rows, columns) if dbias else (0, 0, 0)

    def empty() -> Backward:
        # Sums of dK and dV grow with each part.
        dk, dv = (np.zeros((columns, heads, x.shape[2])) for x in (of.q, of.v))
        return Backward(np.empty(of.q.shape), dk, dv, np.empty(shape))

    found, limits = empty(), empty()
    shares = -(-columns // arithmetic.tile) * arithmetic.dq_sum.unit()
    if arithmetic.dq_sum is FP32:
        shares = 0.0
    # Composable Kernel rounds dS without dropout's factor, which scales the gradients in the end.
    dropped = attention.dropout.scale if attention.dropout else 1.0
    current: slice | None = None
    for part, steps in gradients_by_part(attention, of, do, left.o, left.lse):
        own, p = steps.of, steps.steps
        if part.heads != current:
            current = part.heads
            k = own.of_each_head(own.k)
            size_of_k, size_of_v = np.abs(k), np.abs(own.of_each_head(own.v))
        lse = left.lse[part.heads, part.rows]
        error, size = _logit_errors(attention, own, p, size_of_k)
        base = np.where(np.isfinite(lse), np.abs(lse), 0.0)[..., None]
        inner, size_of_do = steps.inner, np.abs(steps.do)
        dp = pairs(size_of_do, size_of_v)
        delta = np.einsum("ihd,ihd->hi", np.abs(left.o[part.rows, part.heads]), size_of_do)
        alive = p.p > 0
        relative = error + _U * (2 * (size + base) + _EXP)
        sum_v = own.v.shape[2] * _U_SUM
        of_delta = delta * (sum_v + 2 * _U)
        dp *= p.factors
        size_of_delta = np.abs(steps.delta)
        inside = dp * (sum_v + 4 * _U) + (of_delta + 4 * _U * size_of_delta)[..., None]
        lost = _FLUSHED * alive * (dp + size_of_delta[..., None] + 1)
        of_ds = np.abs(steps.ds) * relative + p.p * inside + lost
        size_of_inner = np.abs(inner)
        moved = of_ds * np.abs(p.slope) + size_of_inner * (_TANH * _U + arithmetic.low_unit)
        moved += arithmetic.low_step * dropped * alive
        of_dq = moved + size_of_inner * (columns * _U_SUM + shares)
        of_dk = moved + size_of_inner * (rows * _U_SUM)
        of_dv = p.kept * (relative + rows * _U_SUM + arithmetic.low_unit)
        of_dv += arithmetic.low_step * p.factors * alive
        dq = scale * over_columns(inner, k)
        found.dq[part.rows, part.heads] = dq
        off = scale * over_columns(of_dq, size_of_k)
        limits.dq[part.rows, part.heads] = arithmetic.limit(off, dq)
        found.dk[:, part.heads] += scale * over_rows(inner, own.q)
        limits.dk[:, part.heads] += scale * over_rows(of_dk, np.abs(own.q))
        found.dv[:, part.heads] += over_rows(p.kept, steps.do)
        limits.dv[:, part.heads] += over_rows(of_dv, size_of_do)
        if dbias:
            found.dbias[part.heads, part.rows] = steps.ds
            limits.dbias[part.heads, part.rows] = arithmetic.limit(of_ds, steps.ds)
    for name in ("dk", "dv"):
        total = getattr(limits, name)
        total[...] = arithmetic.limit(total, getattr(found, name))
    return found, limits
