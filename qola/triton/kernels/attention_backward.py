"""Attention, backward: delta, then dK and dV, and dQ. No atomics: the same bits each time."""

import triton
import triton.language as tl
from attention_parts import kept, of_head, put, seen, sequence, tile, window

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def _p_and_ds(
    q, k, v, do, lse, delta, bias, rows_at, columns_at, rows, columns, shift, scale,
    seed, offset, number, keep_below, keep_scale,
    CAUSAL: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Return P as it is multiplied with dO, but for dropout's factor, and the logits' gradient."""
    inside = seen(rows_at, columns_at, columns, shift, CAUSAL)
    s = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
    if BIAS:
        there = inside & (rows_at[:, None] < rows)
        s += tl.load(bias + columns_at[None, :], mask=there, other=0.0).to(tl.float32) * LOG2_E
    # Rows without keys, and those behind the last, have P = 0.
    base = tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)
    p = tl.exp2(tl.where(inside, s, float("-inf")) - base[:, None])
    dp = tl.dot(do, tl.trans(v))
    weights = p
    if DROPOUT:
        keep = kept(seed, offset, number, rows_at, columns_at, keep_below)
        weights = tl.where(keep, p, 0.0)
        dp = tl.where(keep, dp * keep_scale, 0.0)
    return weights, p * (dp - delta[:, None])


@triton.jit
def attention_backward_delta(
    o: "*{dtype}:16", do: "*{dtype}:16", delta: "*fp32:16", starts_q: "*i32:16",
    o_batch: "i64:8", o_head: "i64:8", o_row: "i32:8",
    do_batch: "i64:8", do_head: "i64:8", do_row: "i32:8",
    lse_batch: "i64", lse_head: "i64", rows: "i32",
    HDIM: tl.constexpr, BLOCK_M: tl.constexpr = 64, VARLEN: tl.constexpr = False,
):  # fmt: skip
    """Sum up O dO over hdim; the grid is (tiles of rows, heads, batch), strides of delta LSE's."""
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q, rows = sequence(starts_q, batch, rows, VARLEN)
    first = block * BLOCK_M
    if first >= rows:
        return
    wide = tl.cast(batch, tl.int64)
    at = tl.arange(0, BLOCK_M)
    d = tl.arange(0, triton.next_power_of_2(HDIM))
    o = of_head(o, batch, head, first_q, o_batch, o_head, o_row)
    do = of_head(do, batch, head, first_q, do_batch, do_head, do_row)
    product = tile(o, first, o_row, at, d, rows, HDIM, True).to(tl.float32)
    product *= tile(do, first, do_row, at, d, rows, HDIM, True).to(tl.float32)
    delta += wide * lse_batch + head * lse_head + first_q
    tl.store(delta + first + at, tl.sum(product, 1), mask=first + at < rows)


@triton.jit
def attention_backward_dkdv(
    q: "*{dtype}:16", k: "*{dtype}:16", v: "*{dtype}:16", bias: "*{dtype}:16",
    do: "*{dtype}:16", lse: "*fp32:16", delta: "*fp32:16", dk: "*{dtype}:16", dv: "*{dtype}:16",
    starts_q: "*i32:16", starts_k: "*i32:16",
    q_batch: "i64:8", q_head: "i64:8", q_row: "i32:8",
    k_batch: "i64:8", k_head: "i64:8", k_row: "i32:8",
    v_batch: "i64:8", v_head: "i64:8", v_row: "i32:8",
    bias_batch: "i64", bias_head: "i64", bias_row: "i64",
    do_batch: "i64:8", do_head: "i64:8", do_row: "i32:8",
    dk_batch: "i64:8", dk_head: "i64:8", dk_row: "i32:8",
    dv_batch: "i64:8", dv_head: "i64:8", dv_row: "i32:8",
    lse_batch: "i64", lse_head: "i64",
    rows: "i32", columns: "i32", group: "i32", scale: "fp32",
    seed: "i64", offset: "i32", keep_below: "u32", keep_scale: "fp32",
    HDIM: tl.constexpr, BLOCK_M: tl.constexpr = 64, BLOCK_N: tl.constexpr = 32,
    CAUSAL: tl.constexpr = 0, VARLEN: tl.constexpr = False,
    BIAS: tl.constexpr = False, DROPOUT: tl.constexpr = False,
):  # fmt: skip
    """Compute dK and dV of BLOCK_N columns; the grid is (tiles of columns, heads of K, batch).

    The heads of Q that share a head of K are added up.
    """
    block, head_k, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q, rows = sequence(starts_q, batch, rows, VARLEN)
    first_k, columns = sequence(starts_k, batch, columns, VARLEN)
    first_column = block * BLOCK_N
    if first_column >= columns:
        return
    wide = tl.cast(batch, tl.int64)
    at_m = tl.arange(0, BLOCK_M)
    at_n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, triton.next_power_of_2(HDIM))
    columns_at = first_column + at_n
    k = of_head(k, batch, head_k, first_k, k_batch, k_head, k_row)
    v = of_head(v, batch, head_k, first_k, v_batch, v_head, v_row)
    dk = of_head(dk, batch, head_k, first_k, dk_batch, dk_head, dk_row)
    dv = of_head(dv, batch, head_k, first_k, dv_batch, dv_head, dv_row)
    tile_k = tile(k, first_column, k_row, at_n, d, columns, HDIM, True)
    tile_v = tile(v, first_column, v_row, at_n, d, columns, HDIM, True)
    sum_k = tl.zeros([BLOCK_N, d.shape[0]], tl.float32)
    sum_v = tl.zeros([BLOCK_N, d.shape[0]], tl.float32)
    shift = 0
    begin = 0
    if CAUSAL != 0:
        if CAUSAL == 2:
            shift = columns - rows
        begin = tl.maximum(first_column - shift, 0) // BLOCK_M * BLOCK_M
    for member in range(0, group):
        head = head_k * group + member
        number = batch * tl.num_programs(1) * group + head
        q_head_at = of_head(q, batch, head, first_q, q_batch, q_head, q_row)
        do_head_at = of_head(do, batch, head, first_q, do_batch, do_head, do_row)
        of_rows = wide * lse_batch + head * lse_head + first_q
        for first in range(begin, rows, BLOCK_M):
            rows_at = first + at_m
            there = rows_at < rows
            tile_q = tile(q_head_at, first, q_row, at_m, d, rows, HDIM, True)
            tile_do = tile(do_head_at, first, do_row, at_m, d, rows, HDIM, True)
            tile_lse = tl.load(lse + of_rows + rows_at, mask=there, other=float("-inf"))
            tile_delta = tl.load(delta + of_rows + rows_at, mask=there, other=0.0)
            of_bias = bias
            if BIAS:
                of_bias = bias + (wide * bias_batch + head * bias_head)
                of_bias = of_bias + (first_q + rows_at)[:, None] * bias_row
            p, ds = _p_and_ds(
                tile_q, tile_k, tile_v, tile_do, tile_lse, tile_delta, of_bias, rows_at,
                columns_at, rows, columns, shift, scale, seed, offset, number, keep_below,
                keep_scale, CAUSAL, BIAS, DROPOUT,
            )  # fmt: skip
            sum_v = tl.dot(tl.trans(p.to(tile_do.dtype)), tile_do, sum_v)
            sum_k = tl.dot(tl.trans(ds.to(tile_q.dtype)), tile_q, sum_k)
    if DROPOUT:
        sum_v = sum_v * keep_scale
    put(dk, first_column, dk_row, at_n, d, columns, sum_k * scale, HDIM)
    put(dv, first_column, dv_row, at_n, d, columns, sum_v, HDIM)


@triton.jit
def attention_backward_dq(
    q: "*{dtype}:16", k: "*{dtype}:16", v: "*{dtype}:16", bias: "*{dtype}:16",
    do: "*{dtype}:16", lse: "*fp32:16", delta: "*fp32:16", dq: "*{dtype}:16",
    dbias: "*{dtype}:16", starts_q: "*i32:16", starts_k: "*i32:16",
    q_batch: "i64:8", q_head: "i64:8", q_row: "i32:8",
    k_batch: "i64:8", k_head: "i64:8", k_row: "i32:8",
    v_batch: "i64:8", v_head: "i64:8", v_row: "i32:8",
    bias_batch: "i64", bias_head: "i64", bias_row: "i64",
    do_batch: "i64:8", do_head: "i64:8", do_row: "i32:8",
    dq_batch: "i64:8", dq_head: "i64:8", dq_row: "i32:8",
    dbias_batch: "i64", dbias_head: "i64", dbias_row: "i64",
    lse_batch: "i64", lse_head: "i64",
    rows: "i32", columns: "i32", group: "i32", scale: "fp32",
    seed: "i64", offset: "i32", keep_below: "u32", keep_scale: "fp32",
    HDIM: tl.constexpr, BLOCK_M: tl.constexpr = 64, BLOCK_N: tl.constexpr = 32,
    CAUSAL: tl.constexpr = 0, VARLEN: tl.constexpr = False,
    BIAS: tl.constexpr = False, DROPOUT: tl.constexpr = False, DBIAS: tl.constexpr = False,
):  # fmt: skip
    """Compute dQ of BLOCK_M rows; the grid is (tiles of rows, heads, batch).

    With DBIAS also the logits' gradient, for each head: of tiles that no row of theirs sees
    nothing is written, so its memory is to be 0 before.
    """
    block, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_q, rows = sequence(starts_q, batch, rows, VARLEN)
    first_k, columns = sequence(starts_k, batch, columns, VARLEN)
    first = block * BLOCK_M
    if first >= rows:
        return
    wide = tl.cast(batch, tl.int64)
    number = batch * tl.num_programs(1) + head
    at_m = tl.arange(0, BLOCK_M)
    at_n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, triton.next_power_of_2(HDIM))
    rows_at = first + at_m
    q = of_head(q, batch, head, first_q, q_batch, q_head, q_row)
    k = of_head(k, batch, head // group, first_k, k_batch, k_head, k_row)
    v = of_head(v, batch, head // group, first_k, v_batch, v_head, v_row)
    do = of_head(do, batch, head, first_q, do_batch, do_head, do_row)
    dq = of_head(dq, batch, head, first_q, dq_batch, dq_head, dq_row)
    of_rows = wide * lse_batch + head * lse_head + first_q
    if BIAS:
        bias += wide * bias_batch + head * bias_head
        bias = bias + (first_q + rows_at)[:, None] * bias_row
    if DBIAS:
        dbias += wide * dbias_batch + head * dbias_head
        dbias = dbias + (first_q + rows_at)[:, None] * dbias_row
    there = rows_at < rows
    tile_q = tile(q, first, q_row, at_m, d, rows, HDIM, True)
    tile_do = tile(do, first, do_row, at_m, d, rows, HDIM, True)
    tile_lse = tl.load(lse + of_rows + rows_at, mask=there, other=float("-inf"))
    tile_delta = tl.load(delta + of_rows + rows_at, mask=there, other=0.0)
    shift, _full, end = window(first, rows, columns, CAUSAL, BLOCK_M, BLOCK_N)
    total = tl.zeros([BLOCK_M, d.shape[0]], tl.float32)
    for column in range(0, end, BLOCK_N):
        columns_at = column + at_n
        tile_k = tile(k, column, k_row, at_n, d, columns, HDIM, True)
        tile_v = tile(v, column, v_row, at_n, d, columns, HDIM, True)
        _p, ds = _p_and_ds(
            tile_q, tile_k, tile_v, tile_do, tile_lse, tile_delta, bias, rows_at, columns_at,
            rows, columns, shift, scale, seed, offset, number, keep_below, keep_scale,
            CAUSAL, BIAS, DROPOUT,
        )  # fmt: skip
        if DBIAS:
            inside = there[:, None] & (columns_at[None, :] < columns)
            tl.store(dbias + columns_at[None, :], ds.to(dbias.dtype.element_ty), mask=inside)
        total = tl.dot(ds.to(tile_k.dtype), tile_k, total)
    put(dq, first, dq_row, at_m, d, rows, total * scale, HDIM)
