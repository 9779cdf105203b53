"""What forward and backward do alike. Triton's own code: imported where Triton is."""

import triton
import triton.language as tl


@triton.jit
def sequence(starts, batch, length, VARLEN: tl.constexpr):
    """Say where a sequence begins, and how long it is: `length`, or as `starts` has it."""
    first = 0
    if VARLEN:
        first = tl.load(starts + batch)
        length = tl.load(starts + batch + 1) - first
    return first, length


@triton.jit
def of_head(base, batch, head, first, batch_stride, head_stride, row_stride):
    """Return where a head's rows from `first` on are; rows and batch are counted in 64 bits."""
    start = tl.cast(batch, tl.int64) * batch_stride + head * head_stride
    return base + (start + tl.cast(first, tl.int64) * row_stride)


@triton.jit
def window(
    first, rows, columns, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Say for a tile of rows how far right its diagonal is, and where its columns end.

    Columns before the second result are seen by all rows of the tile, those behind the third
    by none.
    """
    shift = 0
    full = columns // BLOCK_N * BLOCK_N
    end = columns
    if CAUSAL != 0:
        if CAUSAL == 2:
            shift = columns - rows
        full = tl.minimum(full, tl.maximum(first + shift + 1, 0) // BLOCK_N * BLOCK_N)
        end = tl.minimum(end, tl.maximum(first + shift + BLOCK_M, 0))
    return shift, full, end


@triton.jit
def seen(rows_at, columns_at, columns, shift, CAUSAL: tl.constexpr):
    """Say which keys a query sees."""
    inside = columns_at[None, :] < columns
    if CAUSAL != 0:
        inside = inside & (columns_at[None, :] <= rows_at[:, None] + shift)
    return inside


@triton.jit
def kept(seed, offset, number, rows_at, columns_at, keep_below):
    """Say which elements of P dropout keeps.

    Philox 4x32-10, key `seed`, counter (column, row, head, offset): the first word of each.
    """
    zero = rows_at[:, None] * 0 + columns_at[None, :] * 0
    word, _, _, _ = tl.philox(
        seed, zero + columns_at[None, :], zero + rows_at[:, None], zero + number, zero + offset
    )
    return word < keep_below


@triton.jit
def tile(base, first, row_stride, at, d, limit, HDIM: tl.constexpr, MASKED: tl.constexpr):
    """Load positions first + at, of which those below `limit` are there, and their hdim."""
    # The way to the tile in 64 bits, the one within it in 32.
    start = base + tl.cast(first, tl.int64) * row_stride
    places = start + at[:, None] * row_stride + d[None, :]
    if MASKED:
        mask = (first + at)[:, None] < limit
        if d.shape[0] != HDIM:
            mask = mask & (d[None, :] < HDIM)
        return tl.load(places, mask=mask, other=0.0)
    if d.shape[0] != HDIM:
        return tl.load(places, mask=d[None, :] < HDIM, other=0.0)
    return tl.load(places)


@triton.jit
def put(base, first, row_stride, at, d, limit, values, HDIM: tl.constexpr):
    """Store what `tile` would load."""
    start = base + tl.cast(first, tl.int64) * row_stride
    mask = ((first + at)[:, None] < limit) & (d[None, :] < HDIM)
    tl.store(
        start + at[:, None] * row_stride + d[None, :], values.to(base.dtype.element_ty), mask=mask
    )
