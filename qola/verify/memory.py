"""The tensors of a problem in memory, which programs allocate, fill and read back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem, formats
from qola.reference.formats import F64, FP32, Format
from qola.verify import append, pages
from qola.verify.buffer import FILLER, Buffer, Filled, of_batch, of_pages
from qola.verify.tensors import Tensors

#: Columns of K whose shares of dQ are summed up apart, at least.
_LEAST_SPLIT = 16


def buffers(problem: AttentionProblem, arch: str) -> dict[str, Buffer]:
    """Return the tensors of a problem, by the names that AITER's arguments have."""
    if problem.seqlen_knew:
        return append.buffers(problem, arch)
    given, out = formats(problem.dtype, arch)
    heads, shared = problem.nhead_q, problem.nhead_k
    found: list[Buffer] = []

    def add(name: str, to: Format, of_k: bool, count: int, hdim: int, filled: Filled) -> None:
        lengths = problem.seqlen_k if of_k else problem.seqlen_q
        if of_k and problem.layout.page_block_size:
            found.append(of_pages(problem, name, to, count, hdim, filled))
        elif not problem.is_group_mode:
            found.append(of_batch(problem, name, to, lengths[0], count, hdim, filled))
        else:
            row = count * hdim + problem.layout.row_padding
            shape = (sum(lengths), count, hdim)
            found.append(Buffer(name, to, shape, (row, hdim, 1), filled))

    def add_rows(name: str, filled: Filled) -> None:
        shape = _of_rows(problem)
        found.append(Buffer(name, FP32, shape, _packed(shape), filled))

    q, v = problem.hdim_q, problem.hdim_v
    backward = problem.direction == "bwd"
    shape: tuple[int, ...]
    add("q", given, False, heads, q, "values")
    add("k", given, True, shared, q, "values")
    add("v", given, True, shared, v, "values")
    add("o", out, False, heads, v, "values" if backward else "nan")
    if backward or problem.return_lse:
        add_rows("lse", "values" if backward else "nan")
    if problem.direction == "fwd_splitkv":
        # Results of each split, which another kernel combines.
        for name, more in (("lse_acc", ()), ("o_acc", (v,))):
            shape = (problem.num_splits, *_of_rows(problem), *more)
            found.append(Buffer(name, FP32, shape, _packed(shape), "nan"))
    if problem.bias_type == "bias":
        of_bias = FP32 if given.bits == 8 else given
        rows = sum(problem.seqlen_q) if problem.is_group_mode else problem.seqlen_q[0]
        shape = (problem.nhead_bias, rows, max(problem.seqlen_k))
        found.append(Buffer("bias", of_bias, shape, _packed(shape)))
    if problem.bias_type == "alibi":
        shape = (problem.batch, heads) if problem.batched_alibi_slopes else (heads,)
        found.append(Buffer("alibi_slopes", FP32, shape, _packed(shape)))
    if problem.has_sink:
        found.append(Buffer("sink", FP32, (heads,), (1,)))
    if backward:
        add("do", out, False, heads, v, "values")
        sums = problem.use_asm and not problem.is_v3_atomic_fp32
        # Kernels with 64 rows of K, and all kernels of gfx942, accumulate in it.
        add("dq", out, False, heads, q, "zero" if sums else "nan")
        add("dk", out, True, heads, q, "nan")
        add("dv", out, True, heads, v, "nan")
        add_rows("d", "nan")
        rows = sum(problem.seqlen_q) if problem.is_group_mode else problem.seqlen_q[0]
        splits = -(-max(problem.seqlen_k) // _LEAST_SPLIT) if problem.deterministic else 1
        batch = 1 if problem.is_group_mode else problem.batch
        shape = (max(splits, 1), batch, heads, rows, q)
        if sums:
            # As AITER's own callers allocate it.
            padded = -(-max(problem.seqlen_q) // 16) * 16
            shape = (1, problem.batch, heads, padded, 192 if q == 192 else 128)
        found.append(Buffer("dq_acc", given if sums else FP32, shape, _packed(shape), "zero"))
        if problem.has_dbias:
            shape = (*_of_rows(problem), max(problem.seqlen_k))
            found.append(Buffer("dbias", given, shape, _packed(shape), "nan"))
    return {buffer.name: buffer for buffer in found}


def tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return where sequences begin, and which pages they have, by the names of arguments."""
    if problem.seqlen_knew:
        return append.tables(problem)
    found = pages.tables(problem)
    if problem.is_group_mode:
        found["seqstart_q_ptr"] = np.cumsum([0, *problem.seqlen_q]).astype(np.int32)
        if "kv_indptr" not in found:
            found["seqstart_k_ptr"] = np.cumsum([0, *problem.seqlen_k]).astype(np.int32)
    return found


def _of_rows(problem: AttentionProblem) -> tuple[int, ...]:
    if problem.is_group_mode:
        return (problem.nhead_q, sum(problem.seqlen_q))
    return (problem.batch, problem.nhead_q, problem.seqlen_q[0])


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides without anything in between."""
    strides = [1]
    for count in shape[:0:-1]:
        strides.insert(0, strides[0] * count)
    return tuple(strides)


def stride_arguments(problem: AttentionProblem, of: Mapping[str, Buffer]) -> dict[str, int]:
    """Return AITER's arguments that are named after tensors: stride_q, nhead_stride_q, ..."""
    found: dict[str, int] = {}

    def add(name: str, row: int, head: int, batch: int) -> None:
        found[f"stride_{name}"] = row
        found[f"nhead_stride_{name}"] = head
        found[f"batch_stride_{name}"] = 0 if problem.is_group_mode else batch

    for name, buffer in of.items():
        strides = buffer.strides
        if name in ("q", "k", "v", "o", "do", "dq", "dk", "dv"):
            row, head = strides[-3], strides[-2]
            paged = problem.layout.page_block_size > 0 and name in ("k", "v")
            if not paged and not problem.is_group_mode and problem.layout.order == "bhsd":
                row, head = strides[1], strides[2]
            add(name, row, head, strides[0])
            if paged:
                found[f"batch_stride_{name}"] = problem.layout.page_block_size * row
        elif name == "lse":
            for each in ("lse", "lsed"):
                add(each, 1, strides[-2], strides[0])
        elif name == "bias":
            # The same for each sequence, and, with a single head, for each head.
            add(name, strides[1], strides[0] if buffer.shape[0] > 1 else 0, 0)
        elif name == "alibi_slopes":
            found["stride_bias"] = buffer.shape[1] if problem.batched_alibi_slopes else 0
        elif name == "dbias":
            add(name, strides[-2], strides[-3], strides[0])
        elif name == "lse_acc":
            add(name, 1, strides[-2], strides[1])
            found["split_stride_lse_acc"] = strides[0]
        elif name == "o_acc":
            add(name, strides[-2], strides[-3], strides[1])
            found["split_stride_o_acc"] = strides[0]
        elif name == "dq_acc":
            add(name, strides[3], strides[2], strides[1])
            if not problem.is_v3_atomic_fp32:
                found["batch_stride_dq_acc"] = strides[1]
            found["split_stride_dq_acc"] = strides[0]
    return found


def filled(
    problem: AttentionProblem, given: Tensors, o: F64 | None = None, lse: F64 | None = None
) -> dict[str, F64]:
    """Return the values that buffers are filled with, by their names.

    Args:
        o, lse: of the forward, for a backward.
    """
    if problem.seqlen_knew:
        return append.filled(problem, given)
    values = {name: getattr(given, name) for name in ("q", "k", "v", "do", "bias")}
    values |= {"alibi_slopes": given.alibi_slopes, "sink": given.sink}
    values |= {"o": o, "lse": lse}
    if problem.layout.page_block_size:
        values |= {name: pages.laid_out(problem, values[name], FILLER) for name in ("k", "v")}
    return {name: value for name, value in values.items() if value is not None}
