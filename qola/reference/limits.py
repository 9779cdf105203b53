"""How far a kernel's results may be from the reference: docs/internals/tolerances.md derives it.

A limit is a number for each element of a result of given tensors. It has two parts: the worst
error of rounding, and the likely one for errors that are independent of each other, which
is far less. Both are first order, with a share more for the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
#: Chance that correct arithmetic goes beyond `likely` in any of the elements of a tensor.
CHANCE = 1e-9


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

    def deviations(self, count: int) -> float:
        """Return how many standard deviations stay below CHANCE over a number of elements."""
        return math.sqrt(2 * math.log(2 * max(count, 1) / CHANCE))


@dataclass(frozen=True)
class Limit:
    """Largest errors of the elements of a result.

    Attributes:
        likely: exceeded by independent rounding errors with probability CHANCE.
        worst: never exceeded by rounding.
    """

    likely: F64
    worst: F64


@dataclass(frozen=True)
class _Spread:
    """An error as it is at worst, and as one of a sum of independent errors."""

    deviations: float  # that `likely` allows for

    def of_sum(self, terms: int, unit: float = _U_SUM) -> tuple[float, float]:
        """Return the relative errors of a float32 sum, of the sum of absolute values."""
        return min(terms, self.deviations * math.sqrt(terms)) * unit, terms * unit

    def of_rounding(
        self, weights: F64, other: F64, signed: F64, unit: float, one_sided: bool, equation: str
    ) -> tuple[F64, F64]:
        """Return the errors of sums of products, of which a kernel rounds the first factor.

        Args:
            weights, other: the factors.
            signed: the sums.
            unit: relative error of the rounding.
            one_sided: it never increases a value: then half of it is common to all.
            equation: einsum's, of the sums.
        """
        worst = unit * np.einsum(equation, np.abs(weights), np.abs(other))
        half = unit / 2 if one_sided else unit
        likely = self.deviations * half * np.sqrt(np.einsum(equation, weights**2, other**2))
        if one_sided:
            likely = likely + unit * np.abs(signed)
        return np.minimum(likely, worst), worst


def _pair(likely: F64, worst: F64, arithmetic: Arithmetic, exact: F64, rounds: bool) -> Limit:
    """Return the limit of a result from the errors before it is rounded."""
    low = arithmetic.low.unit(arithmetic.low_rounding)
    # Products of errors, which first order leaves out.
    more = 1 / (1 - 4 * low)
    unit, step = _SCALING * _U, _FLUSHED
    if rounds:
        unit += arithmetic.out.unit(arithmetic.out_rounding)
        step += arithmetic.out.step(arithmetic.out_rounding)
    return Limit(*(e * more + (np.abs(exact) + e * more) * unit + step for e in (likely, worst)))


def _logit_errors(attention: Attention, of: Sequence, spread: _Spread) -> tuple[F64, F64, F64]:
    """Return absolute errors of logits, likely and at worst, and logits without infinities."""
    steps = softmax(attention, of)
    magnitude = attention.softmax_scale * np.einsum(
        "ihd,jhd->hij", np.abs(of.q), np.abs(of.of_each_head(of.k))
    )
    seen = np.where(np.isfinite(steps.logits), steps.logits, 0.0)
    added = np.abs(seen - steps.scores) if attention.logits_soft_cap == 0 else np.abs(seen)
    rest = _U * (3 * np.abs(steps.scores) + 4 * added + 2 * np.abs(seen))
    rest = rest + _TANH * _U * attention.logits_soft_cap
    likely, worst = (
        steps.slope * magnitude * error + rest for error in spread.of_sum(of.q.shape[2])
    )
    return likely, worst, seen


def _rescalings(seen: F64, hidden: NDArray[np.bool_]) -> F64:
    """Return how often the largest logit of a row changes from left to right, [heads, rows]."""
    if seen.shape[2] < 2:
        return np.zeros(seen.shape[:2])
    running = np.maximum.accumulate(np.where(hidden, -np.inf, seen), axis=2)
    result: F64 = (running[..., 1:] > running[..., :-1]).sum(axis=2).astype(np.float64)
    return result


def forward_limits(
    attention: Attention, of: Sequence, arithmetic: Arithmetic
) -> tuple[Limit, Limit]:
    """Return the limits of O, [rows, heads, hdim_v], and of LSE, [heads, rows]."""
    columns = len(of.k)
    v = of.of_each_head(of.v)
    steps = softmax(attention, of)
    weights = steps.p * steps.factors
    o = np.einsum("hij,jhd->ihd", weights, v)
    spread = _Spread(arithmetic.deviations(o.size))
    *errors, seen = _logit_errors(attention, of, spread)
    hidden = np.isneginf(steps.logits)
    most = np.where(hidden, 0.0, np.abs(seen)).max(axis=2, initial=0.0)
    # Each change of the largest logit multiplies the sum by an exp2.
    changes = _rescalings(seen, hidden) + 1
    common = _U * (2 * most + changes * (2 * most + _EXP))[..., None]
    low = arithmetic.low.unit(arithmetic.low_rounding)
    rounding = spread.of_rounding(
        weights, v, o, low, arithmetic.low_rounding == "toward_zero", "hij,jhd->ihd"
    )
    largest = steps.p.max(axis=2, initial=0.0).T[..., None]
    tiny = arithmetic.low.step(arithmetic.low_rounding) + _FLUSHED
    lost = tiny * largest * np.abs(v).sum(axis=0)
    all_o, all_lse = [], []
    for place in range(2):
        relative = errors[place] + common + _U * (2 * np.abs(seen) + _EXP)
        norm = (steps.p * relative).sum(axis=2) + spread.of_sum(columns, _U)[place]
        sums = spread.of_sum(columns)[place]
        moved = np.einsum("hij,jhd->ihd", weights * (relative + sums), np.abs(v))
        scaled = np.abs(o) * (norm.T[..., None] + _LOG * _U)
        all_o.append(moved + rounding[place] + lost + scaled)
        finite = np.where(np.isfinite(steps.lse), np.abs(steps.lse), 0.0)
        all_lse.append(norm + _LOG * _U * (1 + 2 * most + finite))
    lse = np.where(np.isfinite(steps.lse), steps.lse, 0.0)
    return (
        _pair(all_o[0], all_o[1], arithmetic, o, rounds=True),
        _pair(all_lse[0], all_lse[1], arithmetic, lse, rounds=False),
    )


@dataclass(frozen=True)
class BackwardLimits:
    """Limits of the fields of Backward."""

    dq: Limit
    dk: Limit
    dv: Limit
    dbias: Limit
    delta: Limit


def backward_limits(steps: Gradients, o: F64, lse: F64, arithmetic: Arithmetic) -> BackwardLimits:
    """Return the limits of a backward.

    Args:
        steps: of the reference, from the same O and LSE.
        o, lse: as the kernel reads them.
    """
    of, attention, p = steps.of, steps.attention, steps.steps
    k, v = of.of_each_head(of.k), of.of_each_head(of.v)
    rows, columns = len(of.q), len(of.k)
    spread = _Spread(arithmetic.deviations(max(steps.ds.size, of.q.size, k.size)))
    *errors, seen = _logit_errors(attention, of, spread)
    base = np.where(np.isfinite(lse), np.abs(lse), 0.0)[..., None]
    one_sided = arithmetic.low_rounding == "toward_zero"
    low = arithmetic.low.unit(arithmetic.low_rounding)
    tiny = arithmetic.low.step(arithmetic.low_rounding) + _FLUSHED
    kept = p.p * p.factors
    dv = np.einsum("hij,ihd->jhd", kept, steps.do)
    inner = steps.ds * p.slope
    dq = np.einsum("hij,jhd->ihd", inner, k)
    dk = np.einsum("hij,ihd->jhd", inner, of.q)
    of_p = spread.of_rounding(kept, steps.do, dv, low, one_sided, "hij,ihd->jhd")
    of_dq = spread.of_rounding(inner, k, dq, low, one_sided, "hij,jhd->ihd")
    of_dk = spread.of_rounding(inner, of.q, dk, low, one_sided, "hij,ihd->jhd")
    dp = np.einsum("ihd,jhd->hij", np.abs(steps.do), np.abs(v))
    delta = np.einsum("ihd,ihd->hi", np.abs(o), np.abs(steps.do))
    alive = p.p > 0
    found: list[dict[str, F64]] = []
    for place in range(2):
        relative = errors[place] + _U * (2 * (np.abs(seen) + base) + _EXP)
        sum_v = spread.of_sum(v.shape[2])[place]
        of_delta = delta * (sum_v + 2 * _U)
        inside = (
            p.factors * dp * (sum_v + 4 * _U) + (of_delta + 4 * _U * np.abs(steps.delta))[..., None]
        )
        lost = _FLUSHED * alive * (p.factors * dp + np.abs(steps.delta)[..., None] + 1)
        of_ds = np.abs(steps.ds) * relative + p.p * inside + lost
        sums = {name: spread.of_sum(n)[place] for name, n in (("r", rows), ("c", columns))}
        moved = of_ds * np.abs(p.slope) + np.abs(inner) * _TANH * _U + tiny * alive
        shares = spread.of_sum(-(-columns // arithmetic.tile), arithmetic.dq_sum.unit())[place]
        if arithmetic.dq_sum is FP32:
            shares = 0.0
        whole = np.abs(inner)
        by_column = np.einsum("hij,jhd->ihd", moved + whole * (sums["c"] + shares), np.abs(k))
        by_row = np.einsum("hij,ihd->jhd", moved + whole * sums["r"], np.abs(of.q))
        of_dv = np.einsum(
            "hij,ihd->jhd",
            kept * (relative + sums["r"]) + tiny * p.factors * alive,
            np.abs(steps.do),
        )
        found.append(
            {
                "dq": attention.softmax_scale * (by_column + of_dq[place]),
                "dk": attention.softmax_scale * (by_row + of_dk[place]),
                "dv": of_dv + of_p[place],
                "dbias": of_ds,
                "delta": of_delta,
            }
        )
    exact = {
        "dq": attention.softmax_scale * dq,
        "dk": attention.softmax_scale * dk,
        "dv": dv,
        "dbias": steps.ds,
    }
    full = replace(arithmetic, out=FP32, out_rounding="nearest_even")
    limits = {
        name: _pair(found[0][name], found[1][name], arithmetic, value, rounds=True)
        for name, value in exact.items()
    }
    limits["delta"] = _pair(found[0]["delta"], found[1]["delta"], full, steps.delta, rounds=True)
    return BackwardLimits(**limits)
