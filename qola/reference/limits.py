"""How far a kernel's results may be from the reference: docs/internals/tolerances.md derives it.

A limit is a number for each element of a result of given tensors, which no rounding exceeds. It is
of first order, with a share more for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qola.reference.attention import Attention, Gradients, Sequence, softmax
from qola.reference.formats import F64, FP32, Format, Rounding

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


def _logit_errors(attention: Attention, of: Sequence) -> tuple[F64, F64]:
    """Return absolute errors of logits, and logits without infinities."""
    steps = softmax(attention, of)
    magnitude = attention.softmax_scale * np.einsum(
        "ihd,jhd->hij", np.abs(of.q), np.abs(of.of_each_head(of.k))
    )
    seen = np.where(np.isfinite(steps.logits), steps.logits, 0.0)
    added = np.abs(seen - steps.scores) if attention.logits_soft_cap == 0 else np.abs(seen)
    rest = _U * (3 * np.abs(steps.scores) + 4 * added + 2 * np.abs(seen))
    rest = rest + _TANH * _U * attention.logits_soft_cap
    return steps.slope * magnitude * (of.q.shape[2] * _U_SUM) + rest, seen


def _rescalings(seen: F64, hidden: NDArray[np.bool_]) -> F64:
    """Return how often the largest logit of a row changes from left to right, [heads, rows]."""
    if seen.shape[2] < 2:
        return np.zeros(seen.shape[:2])
    running = np.maximum.accumulate(np.where(hidden, -np.inf, seen), axis=2)
    result: F64 = (running[..., 1:] > running[..., :-1]).sum(axis=2).astype(np.float64)
    return result


def forward_limits(attention: Attention, of: Sequence, arithmetic: Arithmetic) -> tuple[F64, F64]:
    """Return the limits of O, [rows, heads, hdim_v], and of LSE, [heads, rows]."""
    columns = len(of.k)
    v = of.of_each_head(of.v)
    steps = softmax(attention, of)
    weights = steps.p * steps.factors
    o = np.einsum("hij,jhd->ihd", weights, v)
    error, seen = _logit_errors(attention, of)
    hidden = np.isneginf(steps.logits)
    most = np.where(hidden, 0.0, np.abs(seen)).max(axis=2, initial=0.0)
    # Each change of the largest logit multiplies the sum by an exp2.
    changes = _rescalings(seen, hidden) + 1
    common = _U * (2 * most + changes * (2 * most + _EXP))[..., None]
    relative = error + common + _U * (2 * np.abs(seen) + _EXP)
    norm = (steps.p * relative).sum(axis=2) + columns * _U
    # P is off and rounded, and the sum is.
    of_p = relative + columns * _U_SUM + arithmetic.low_unit
    moved = np.einsum("hij,jhd->ihd", weights * of_p, np.abs(v))
    largest = steps.p.max(axis=2, initial=0.0).T[..., None]
    lost = arithmetic.low_step * largest * np.abs(v).sum(axis=0)
    of_o = moved + lost + np.abs(o) * (norm.T[..., None] + _LOG * _U)
    lse = np.where(np.isfinite(steps.lse), steps.lse, 0.0)
    of_lse = norm + _LOG * _U * (1 + 2 * most + np.abs(lse))
    return arithmetic.limit(of_o, o), arithmetic.limit(of_lse, lse, rounds=False)


def backward_limits(steps: Gradients, o: F64, lse: F64, arithmetic: Arithmetic) -> dict[str, F64]:
    """Return the limits of dq, dk, dv and dbias.

    Args:
        steps: the reference's intermediate values, computed from the same O and LSE.
        o, lse: as the kernel reads them.
    """
    of, attention, p = steps.of, steps.attention, steps.steps
    k, v = of.of_each_head(of.k), of.of_each_head(of.v)
    rows, columns = len(of.q), len(of.k)
    error, seen = _logit_errors(attention, of)
    base = np.where(np.isfinite(lse), np.abs(lse), 0.0)[..., None]
    kept = p.p * p.factors
    inner = steps.ds * p.slope
    dp = np.einsum("ihd,jhd->hij", np.abs(steps.do), np.abs(v))
    delta = np.einsum("ihd,ihd->hi", np.abs(o), np.abs(steps.do))
    alive = p.p > 0
    relative = error + _U * (2 * (np.abs(seen) + base) + _EXP)
    sum_v = v.shape[2] * _U_SUM
    of_delta = delta * (sum_v + 2 * _U)
    inside = (
        p.factors * dp * (sum_v + 4 * _U) + (of_delta + 4 * _U * np.abs(steps.delta))[..., None]
    )
    lost = _FLUSHED * alive * (p.factors * dp + np.abs(steps.delta)[..., None] + 1)
    of_ds = np.abs(steps.ds) * relative + p.p * inside + lost
    moved = of_ds * np.abs(p.slope) + np.abs(inner) * (_TANH * _U + arithmetic.low_unit)
    # Composable Kernel rounds dS without dropout's factor, which scales the gradients in the end.
    dropped = attention.dropout.scale if attention.dropout else 1.0
    moved = moved + arithmetic.low_step * dropped * alive
    shares = -(-columns // arithmetic.tile) * arithmetic.dq_sum.unit()
    if arithmetic.dq_sum is FP32:
        shares = 0.0
    of_dq = moved + np.abs(inner) * (columns * _U_SUM + shares)
    of_dk = moved + np.abs(inner) * (rows * _U_SUM)
    of_dv = kept * (relative + rows * _U_SUM + arithmetic.low_unit)
    of_dv = of_dv + arithmetic.low_step * p.factors * alive
    scale = attention.softmax_scale
    found = {}
    for name, error, exact, other, factor, equation in (
        ("dq", of_dq, inner, k, scale, "hij,jhd->ihd"),
        ("dk", of_dk, inner, of.q, scale, "hij,ihd->jhd"),
        ("dv", of_dv, kept, steps.do, 1.0, "hij,ihd->jhd"),
    ):
        off = factor * np.einsum(equation, error, np.abs(other))
        found[name] = arithmetic.limit(off, factor * np.einsum(equation, exact, other))
    return found | {"dbias": arithmetic.limit(of_ds, steps.ds)}
