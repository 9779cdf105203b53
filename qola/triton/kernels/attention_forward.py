"""Attention, forward. Annotations are the types to compile for: docs/guide/triton.md."""

import triton
import triton.language as tl
from attention_parts import kept, of_head, put, seen, sequence, tile, window

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN_2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def _columns(
    acc, total, most, q, k, v, bias, lo, hi, columns, shift, rows_at, rows, k_row, v_row,
    scale, seed, offset, number, keep_below, d,
    HDIM: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Take the tiles of K and V from column lo to hi."""
    at = tl.arange(0, BLOCK_N)
    for first in range(lo, hi, BLOCK_N):
        columns_at = first + at
        s = tl.dot(q, tl.trans(tile(k, first, k_row, at, d, columns, HDIM, MASKED)))
        s = s * (scale * LOG2_E)
        if BIAS:
            inside = (rows_at[:, None] < rows) & (columns_at[None, :] < columns)
            s += tl.load(bias + columns_at[None, :], mask=inside, other=0.0).to(tl.float32) * LOG2_E
        if MASKED:
            s = tl.where(seen(rows_at, columns_at, columns, shift, CAUSAL), s, float("-inf"))
        now = tl.maximum(most, tl.max(s, 1))
        # A row that sees no key so far has nothing to subtract.
        base = tl.where(now == float("-inf"), 0.0, now)
        p = tl.exp2(s - base[:, None])
        less = tl.exp2(most - base)
        total = total * less + tl.sum(p, 1)
        if DROPOUT:
            p = tl.where(kept(seed, offset, number, rows_at, columns_at, keep_below), p, 0.0)
        values = tile(v, first, v_row, at, d, columns, HDIM, MASKED)
        acc = tl.dot(p.to(values.dtype), values, acc * less[:, None])
        most = now
    return acc, total, most


@triton.jit
def attention_forward(
    q: "*{dtype}:16", k: "*{dtype}:16", v: "*{dtype}:16", bias: "*{dtype}:16",
    o: "*{dtype}:16", lse: "*fp32:16", starts_q: "*i32:16", starts_k: "*i32:16",
    q_batch: "i64:8", q_head: "i64:8", q_row: "i32:8",
    k_batch: "i64:8", k_head: "i64:8", k_row: "i32:8",
    v_batch: "i64:8", v_head: "i64:8", v_row: "i32:8",
    bias_batch: "i64", bias_head: "i64", bias_row: "i64",
    o_batch: "i64:8", o_head: "i64:8", o_row: "i32:8",
    lse_batch: "i64", lse_head: "i64",
    rows: "i32", columns: "i32", group: "i32", scale: "fp32",
    seed: "i64", offset: "i32", keep_below: "u32", keep_scale: "fp32",
    HDIM: tl.constexpr, BLOCK_M: tl.constexpr = 64, BLOCK_N: tl.constexpr = 32,
    CAUSAL: tl.constexpr = 0, VARLEN: tl.constexpr = False,
    BIAS: tl.constexpr = False, DROPOUT: tl.constexpr = False,
):  # fmt: skip
    """Compute O and LSE of BLOCK_M rows of a head; the grid is (tiles of rows, heads, batch).

    Rows without keys get 0, and -inf. Strides are in elements, that of hdim is 1. With VARLEN
    sequences lie one behind the other, `starts` have where each begins and the last one ends,
    and strides of batch are 0.
    """
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q, rows = sequence(starts_q, batch, rows, VARLEN)
    first_k, columns = sequence(starts_k, batch, columns, VARLEN)
    first = block * BLOCK_M
    if first >= rows:
        return
    wide = tl.cast(batch, tl.int64)
    number = batch * tl.num_programs(1) + head
    at = tl.arange(0, BLOCK_M)
    d = tl.arange(0, triton.next_power_of_2(HDIM))
    rows_at = first + at
    q = of_head(q, batch, head, first_q, q_batch, q_head, q_row)
    k = of_head(k, batch, head // group, first_k, k_batch, k_head, k_row)
    v = of_head(v, batch, head // group, first_k, v_batch, v_head, v_row)
    o = of_head(o, batch, head, first_q, o_batch, o_head, o_row)
    lse += wide * lse_batch + head * lse_head + first_q
    if BIAS:
        bias += wide * bias_batch + head * bias_head
        bias = bias + (first_q + rows_at)[:, None] * bias_row
    shift, full, end = window(first, rows, columns, CAUSAL, BLOCK_M, BLOCK_N)
    tile_q = tile(q, first, q_row, at, d, rows, HDIM, True)
    acc = tl.zeros([BLOCK_M, d.shape[0]], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    acc, total, most = _columns(
        acc, total, most, tile_q, k, v, bias, 0, full, columns, shift, rows_at, rows, k_row, v_row,
        scale, seed, offset, number, keep_below, d,
        HDIM, CAUSAL, BIAS, DROPOUT, BLOCK_N, False,
    )  # fmt: skip
    acc, total, most = _columns(
        acc, total, most, tile_q, k, v, bias, full, end, columns, shift, rows_at, rows, k_row,
        v_row, scale, seed, offset, number, keep_below, d,
        HDIM, CAUSAL, BIAS, DROPOUT, BLOCK_N, True,
    )  # fmt: skip
    some = total > 0.0
    factor = tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)
    if DROPOUT:
        factor = factor * keep_scale
    put(o, first, o_row, at, d, rows, acc * factor[:, None], HDIM)
    logarithm = (most + tl.log2(tl.where(some, total, 1.0))) * LN_2
    tl.store(lse + rows_at, tl.where(some, logarithm, float("-inf")), mask=rows_at < rows)
