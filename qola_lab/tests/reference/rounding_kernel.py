"""A NumPy kernel that rounds like CK's pipelines: float32 tiles, P rounded to 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64, rounded
from qola_lab.reference.attention import Attention, Backward, Forward, Sequence
from qola_lab.reference.limits import Arithmetic
from qola_lab.reference.masks import alibi

F32 = NDArray[np.float32]
_LOG2E = np.float32(1.4426950408889634)


@dataclass(frozen=True)
class Faults:
    """Errors that a kernel makes on purpose.

    Attributes:
        unpadded: treat keys after the last one, up to a whole tile, as zeros.
        lost_columns: number of columns at the end of each tile that the second product omits.
        lse_base_2: return LSE to base 2.
        no_rescaling: do not rescale sums when the maximum grows.
        next_head: read K and V of the next head.
        bias_factor: multiply the bias by this factor.
        no_delta: compute dS without the row sums of O * dO.
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


def _logits(attention: Attention, tensors: Sequence, k: F64, faults: Faults) -> F32:
    """Return logits times log2(e), in float32."""
    scale = _f32(attention.softmax_scale) * _LOG2E
    rows, columns = len(tensors.q), len(k)
    raw = np.matmul(_f32(tensors.q).transpose(1, 0, 2), _f32(k).transpose(1, 2, 0))
    if attention.logits_soft_cap > 0:
        inverse = scale / _LOG2E / _f32(attention.logits_soft_cap)
        power = np.exp2(2 * _LOG2E * (raw * inverse))
        found = _f32(attention.logits_soft_cap) * _LOG2E * (1 - 2 * (1 / (power + np.float32(1))))
    else:
        found = raw * scale
    if tensors.bias is not None:
        found = found + _LOG2E * _f32(tensors.bias * faults.bias_factor)
    if tensors.alibi_slopes is not None:
        position = alibi(np.ones(len(tensors.alibi_slopes)), rows, columns, attention.mask)
        found = found + _f32(tensors.alibi_slopes)[:, None, None] * _LOG2E * _f32(position)
    allowed = attention.mask.allowed(rows, columns)
    result: F32 = np.where(allowed, found, np.float32(-np.inf))
    return result


def run_forward(
    attention: Attention, tensors: Sequence, arithmetic: Arithmetic, faults: Faults = RIGHT
) -> Forward:
    """Return O and LSE of the kernel."""
    k, v = tensors.of_each_head(tensors.k), tensors.of_each_head(tensors.v)
    if faults.next_head:
        k, v = np.roll(k, 1, axis=1), np.roll(v, 1, axis=1)
    columns, tile = len(k), arithmetic.tile
    logits = _logits(attention, tensors, k, faults)
    keep_factors = np.ones(logits.shape, np.float32)
    if attention.dropout is not None:
        keep_factors = _f32(
            attention.dropout.factors(tensors.number, tensors.heads, len(tensors.q), columns)
        )
    if faults.unpadded:
        padding = -columns % tile
        logits = np.pad(logits, ((0, 0), (0, 0), (0, padding)))
        keep_factors = np.pad(keep_factors, ((0, 0), (0, 0), (0, padding)))
        v = np.pad(v, ((0, padding), (0, 0), (0, 0)))
    heads, rows, columns = logits.shape
    maximum = np.full((heads, rows), -np.inf, np.float32)
    norm = np.zeros((heads, rows), np.float32)
    o = np.zeros((heads, rows, v.shape[2]), np.float32)
    if tensors.sink is not None:
        maximum[:] = _f32(tensors.sink)[:, None] * _LOG2E
        norm[:] = 1
    for start in range(0, columns, tile):
        block = slice(start, start + tile)
        new = np.maximum(maximum, logits[..., block].max(axis=2))
        base = np.where(np.isneginf(new), np.float32(0), new)
        p = np.exp2(logits[..., block] - base[..., None])
        rescale = np.exp2(maximum - base)
        if faults.no_rescaling:
            rescale = np.ones_like(rescale)
        norm = rescale * norm + p.sum(axis=2)
        low = _f32(rounded(p * keep_factors[..., block], arithmetic.low, arithmetic.low_rounding))
        if faults.lost_columns:
            low[..., -faults.lost_columns :] = 0
        o = o * rescale[..., None] + np.matmul(low, _f32(v[block]).transpose(1, 0, 2))
        maximum = new
    with np.errstate(divide="ignore"):
        inverse = np.where(norm == 0, np.float32(0), 1 / norm)
        lse = maximum / _LOG2E + np.log(norm)
    if faults.lse_base_2:
        lse = maximum + np.log2(norm)
    scaled = (o * inverse[..., None]).transpose(1, 0, 2)
    out = rounded(scaled, arithmetic.out, arithmetic.out_rounding)
    return Forward(out, lse.astype(np.float64))


def run_backward(
    attention: Attention,
    tensors: Sequence,
    do: F64,
    stored: Forward,
    arithmetic: Arithmetic,
    faults: Faults = RIGHT,
) -> Backward:
    """Return the gradients of the kernel.

    Args:
        stored: O and LSE that a forward kernel stored.
    """
    k, v = tensors.of_each_head(tensors.k), tensors.of_each_head(tensors.v)
    if faults.next_head:
        k, v = np.roll(k, 1, axis=1), np.roll(v, 1, axis=1)
    logits = _logits(attention, tensors, k, faults)
    lse = _f32(np.where(np.isneginf(stored.lse), 0, stored.lse)) * _LOG2E
    p = np.exp2(logits - lse[..., None])
    undropped, scale = np.float32(1), np.float32(1)
    keep_mask = np.ones(p.shape, np.bool_)
    if attention.dropout is not None:
        keep_mask = attention.dropout.factors(tensors.number, tensors.heads, *p.shape[1:]) > 0
        undropped = np.float32(attention.dropout.undropped)
        scale = np.float32(attention.dropout.scale)

    def low(values: F32) -> F32:
        return _f32(rounded(values, arithmetic.low, arithmetic.low_rounding))

    def out(values: F32) -> F64:
        return rounded(values, arithmetic.out, arithmetic.out_rounding)

    g = _f32(do).transpose(1, 0, 2)
    delta = (_f32(stored.o) * _f32(do)).sum(axis=2).T * undropped
    if faults.no_delta:
        delta = np.zeros_like(delta)
    dv = np.zeros((p.shape[0], p.shape[2], v.shape[2]), np.float32)
    dk = np.zeros((p.shape[0], p.shape[2], k.shape[2]), np.float32)
    dp = np.matmul(g, _f32(v).transpose(1, 2, 0))
    ds = p * np.where(keep_mask, dp - delta[..., None], -delta[..., None])
    for start in range(0, len(tensors.q), arithmetic.tile):
        block = slice(start, start + arithmetic.tile)
        p_transposed = low(np.where(keep_mask, p, 0)[:, block]).transpose(0, 2, 1)
        dv += np.matmul(p_transposed, g[:, block])
        dk += np.matmul(
            low(ds[:, block]).transpose(0, 2, 1), _f32(tensors.q[block]).transpose(1, 0, 2)
        )
    dq = np.zeros((p.shape[0], p.shape[1], k.shape[2]), np.float32)
    for start in range(0, len(k), arithmetic.tile):
        block = slice(start, start + arithmetic.tile - faults.lost_columns)
        dq += np.matmul(low(ds[..., block]), _f32(k[block]).transpose(1, 0, 2))
    factor = _f32(attention.softmax_scale) * scale
    return Backward(
        dq=out(dq * factor).transpose(1, 0, 2),
        dk=out(dk * factor).transpose(1, 0, 2),
        dv=out(dv * scale).transpose(1, 0, 2),
        dbias=out(ds * scale),
    )
