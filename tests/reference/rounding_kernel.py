"""A kernel in NumPy: tile after tile in float32, P rounded to 16 bits, as CK's pipelines do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.reference.attention import Attention, Backward, Forward, Sequence
from qola.reference.formats import F64, rounded
from qola.reference.limits import Arithmetic
from qola.reference.masks import alibi

F32 = NDArray[np.float32]
_LOG2E = np.float32(1.4426950408889634)


@dataclass(frozen=True)
class Faults:
    """What is wrong with a kernel.

    Attributes:
        unpadded: keys beyond the last one, up to a whole tile, count as zeros.
        lost_columns: columns at the end of each tile that its second product leaves out.
        lse_base_2: LSE is a logarithm to base 2.
        no_rescaling: of what is summed up when a larger logit comes.
        next_head: K and V of the next head.
        bias_factor: of the bias.
        no_delta: dS lacks the sum of O dO.
    """

    unpadded: bool = False
    lost_columns: int = 0
    lse_base_2: bool = False
    no_rescaling: bool = False
    next_head: bool = False
    bias_factor: float = 1.0
    no_delta: bool = False


RIGHT = Faults()


def _f32(values: Any) -> F32:
    result: F32 = np.asarray(values, np.float32)
    return result


def _logits(attention: Attention, of: Sequence, k: F64, faults: Faults) -> F32:
    """Logits times log2(e), in float32."""
    scale = _f32(attention.softmax_scale) * _LOG2E
    rows, columns = len(of.q), len(k)
    raw = np.matmul(_f32(of.q).transpose(1, 0, 2), _f32(k).transpose(1, 2, 0))
    if attention.logits_soft_cap > 0:
        inverse = scale / _LOG2E / _f32(attention.logits_soft_cap)
        power = np.exp2(2 * _LOG2E * (raw * inverse))
        found = _f32(attention.logits_soft_cap) * _LOG2E * (1 - 2 * (1 / (power + np.float32(1))))
    else:
        found = raw * scale
    if of.bias is not None:
        found = found + _LOG2E * _f32(of.bias * faults.bias_factor)
    if of.alibi_slopes is not None:
        position = alibi(np.ones(len(of.alibi_slopes)), rows, columns, attention.mask)
        found = found + _f32(of.alibi_slopes)[:, None, None] * _LOG2E * _f32(position)
    allowed = attention.mask.allowed(rows, columns)
    result: F32 = np.where(allowed, found, np.float32(-np.inf))
    return result


def run_forward(
    attention: Attention, of: Sequence, arithmetic: Arithmetic, faults: Faults = RIGHT
) -> Forward:
    """Return O and LSE of the kernel."""
    k, v = of.of_each_head(of.k), of.of_each_head(of.v)
    if faults.next_head:
        k, v = np.roll(k, 1, axis=1), np.roll(v, 1, axis=1)
    columns, tile = len(k), arithmetic.tile
    logits = _logits(attention, of, k, faults)
    kept = np.ones(logits.shape, np.float32)
    if attention.dropout is not None:
        kept = _f32(attention.dropout.factors(of.number, of.heads, len(of.q), columns))
    if faults.unpadded:
        more = -columns % tile
        logits = np.pad(logits, ((0, 0), (0, 0), (0, more)))
        kept = np.pad(kept, ((0, 0), (0, 0), (0, more)))
        v = np.pad(v, ((0, more), (0, 0), (0, 0)))
    heads, rows, columns = logits.shape
    most = np.full((heads, rows), -np.inf, np.float32)
    norm = np.zeros((heads, rows), np.float32)
    o = np.zeros((heads, rows, v.shape[2]), np.float32)
    if of.sink is not None:
        most[:] = _f32(of.sink)[:, None] * _LOG2E
        norm[:] = 1
    for start in range(0, columns, tile):
        here = slice(start, start + tile)
        new = np.maximum(most, logits[..., here].max(axis=2))
        base = np.where(np.isneginf(new), np.float32(0), new)
        p = np.exp2(logits[..., here] - base[..., None])
        again = np.exp2(most - base)
        if faults.no_rescaling:
            again = np.ones_like(again)
        norm = again * norm + p.sum(axis=2)
        low = _f32(rounded(p * kept[..., here], arithmetic.low, arithmetic.low_rounding))
        if faults.lost_columns:
            low[..., -faults.lost_columns :] = 0
        o = o * again[..., None] + np.matmul(low, _f32(v[here]).transpose(1, 0, 2))
        most = new
    with np.errstate(divide="ignore"):
        inverse = np.where(norm == 0, np.float32(0), 1 / norm)
        lse = most / _LOG2E + np.log(norm)
    if faults.lse_base_2:
        lse = most + np.log2(norm)
    whole = (o * inverse[..., None]).transpose(1, 0, 2)
    out = rounded(whole, arithmetic.out, arithmetic.out_rounding)
    return Forward(out, lse.astype(np.float64))


def run_backward(
    attention: Attention,
    of: Sequence,
    do: F64,
    left: Forward,
    arithmetic: Arithmetic,
    faults: Faults = RIGHT,
) -> Backward:
    """Return the gradients of the kernel.

    Args:
        left: what a forward kernel left.
    """
    k, v = of.of_each_head(of.k), of.of_each_head(of.v)
    if faults.next_head:
        k, v = np.roll(k, 1, axis=1), np.roll(v, 1, axis=1)
    logits = _logits(attention, of, k, faults)
    lse = _f32(np.where(np.isneginf(left.lse), 0, left.lse)) * _LOG2E
    p = np.exp2(logits - lse[..., None])
    undropped, scale = np.float32(1), np.float32(1)
    kept = np.ones(p.shape, np.bool_)
    if attention.dropout is not None:
        kept = attention.dropout.factors(of.number, of.heads, *p.shape[1:]) > 0
        undropped = np.float32(attention.dropout.undropped)
        scale = np.float32(attention.dropout.scale)

    def low(values: F32) -> F32:
        return _f32(rounded(values, arithmetic.low, arithmetic.low_rounding))

    def out(values: F32) -> F64:
        return rounded(values, arithmetic.out, arithmetic.out_rounding)

    g = _f32(do).transpose(1, 0, 2)
    delta = (_f32(left.o) * _f32(do)).sum(axis=2).T * undropped
    if faults.no_delta:
        delta = np.zeros_like(delta)
    dv = np.zeros((p.shape[0], p.shape[2], v.shape[2]), np.float32)
    dk = np.zeros((p.shape[0], p.shape[2], k.shape[2]), np.float32)
    dp = np.matmul(g, _f32(v).transpose(1, 2, 0))
    ds = p * np.where(kept, dp - delta[..., None], -delta[..., None])
    for start in range(0, len(of.q), arithmetic.tile):
        here = slice(start, start + arithmetic.tile)
        turned = low(np.where(kept, p, 0)[:, here]).transpose(0, 2, 1)
        dv += np.matmul(turned, g[:, here])
        dk += np.matmul(low(ds[:, here]).transpose(0, 2, 1), _f32(of.q[here]).transpose(1, 0, 2))
    dq = np.zeros((p.shape[0], p.shape[1], k.shape[2]), np.float32)
    for start in range(0, len(k), arithmetic.tile):
        here = slice(start, start + arithmetic.tile - faults.lost_columns)
        dq += np.matmul(low(ds[..., here]), _f32(k[here]).transpose(1, 0, 2))
    factor = _f32(attention.softmax_scale) * scale
    return Backward(
        dq=out(dq * factor).transpose(1, 0, 2),
        dk=out(dk * factor).transpose(1, 0, 2),
        dv=out(dv * scale).transpose(1, 0, 2),
        dbias=out(ds * scale),
    )
