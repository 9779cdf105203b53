"""The tensors of a problem in memory, which programs allocate, fill and read back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem, formats
from qola.reference.formats import F64, FP32, Format
from qola.verify import append, pages
from qola.verify.buffer import FILLER, Buffer, Filled
from qola.verify.tensors import Tensors, positions

#: Columns of K whose shares of dQ are summed up apart, at least.
_LEAST_SPLIT = 16


def buffers(problem: AttentionProblem, arch: str) -> dict[str, Buffer]:
    """Return the tensors of a problem, by the names that AITER's arguments have."""
    given, out = formats(problem.dtype, arch)
    layout, heads, shared = problem.layout, problem.nhead_q, problem.nhead_k
    q, v = problem.hdim_q, problem.hdim_v
    appends, backward = problem.seqlen_knew > 0, problem.direction == "bwd"
    # Sequences that rows are appended to lie apart from each other in every mode.
    group = problem.is_group_mode and not appends
    of_q, of_k = ((sum if group else max)(n) for n in (problem.seqlen_q, problem.seqlen_k))
    found: dict[str, Buffer] = {}

    def add(name: str, to: Format, length: int, count: int, hdim: int, filled: Filled) -> None:
        row = count * hdim + layout.row_padding
        shape: tuple[int, ...] = (length, count, hdim)
        strides: tuple[int, ...] = (row, hdim, 1)
        if layout.page_block_size and name in ("k", "v"):
            shape = (pages.count(problem) * layout.page_block_size, count, hdim)
        elif not group:
            shape, strides = (problem.batch, *shape), (length * row, *strides)
            if layout.order == "bhsd":
                row = hdim + layout.row_padding
                strides = (count * length * row, row, length * row, 1)
        found[name] = Buffer(name, to, shape, strides, filled)

    def add_packed(name: str, to: Format, filled: Filled, *shape: int) -> None:
        strides = [1]
        for count in shape[:0:-1]:
            strides.insert(0, strides[0] * count)
        found[name] = Buffer(name, to, shape, tuple(strides), filled)

    rotates = problem.rope_type != "no"
    add("q", given, of_q, heads, q, "updated" if appends and rotates else "values")
    add("k", given, of_k, shared, q, "updated" if appends else "values")
    add("v", given, of_k, shared, v, "updated" if appends else "values")
    if appends:
        add("knew", given, problem.seqlen_knew, shared, q, "values")
        add("vnew", given, problem.seqlen_knew, shared, v, "values")
        if rotates:
            for name in ("rotary_cos", "rotary_sin"):
                half = problem.rotary_dim // 2
                add_packed(name, given, "values", positions(problem), half)
        return found
    add("o", out, of_q, heads, v, "values" if backward else "nan")
    rows = problem.lse_shape
    if backward or problem.return_lse:
        add_packed("lse", FP32, "values" if backward else "nan", *rows)
    if problem.direction == "fwd_splitkv":
        # Results of each split, which another kernel combines.
        add_packed("lse_acc", FP32, "nan", problem.num_splits, *rows)
        add_packed("o_acc", FP32, "nan", problem.num_splits, *rows, v)
    longest = max(problem.seqlen_k)
    if problem.bias_type == "bias":
        of_bias = FP32 if given.bits == 8 else given
        add_packed("bias", of_bias, "values", problem.nhead_bias, of_q, longest)
    if problem.bias_type == "alibi":
        sequences = (problem.batch,) if problem.batched_alibi_slopes else ()
        add_packed("alibi_slopes", FP32, "values", *sequences, heads)
    if problem.has_sink:
        add_packed("sink", FP32, "values", heads)
    if backward:
        add("do", out, of_q, heads, v, "values")
        sums = problem.use_asm and not problem.is_v3_atomic_fp32
        # Kernels with 64 rows of K, and all kernels of gfx942, accumulate in it.
        add("dq", out, of_q, heads, q, "zero" if sums else "nan")
        add("dk", out, of_k, heads, q, "nan")
        add("dv", out, of_k, heads, v, "nan")
        add_packed("d", FP32, "nan", *rows)
        splits = max(1, -(-longest // _LEAST_SPLIT)) if problem.deterministic else 1
        if sums:
            # As AITER's own callers allocate it.
            padded = -(-max(problem.seqlen_q) // 16) * 16
            shape = (1, problem.batch, heads, padded, 192 if q == 192 else 128)
        else:
            shape = (splits, 1 if group else problem.batch, heads, of_q, q)
        add_packed("dq_acc", given if sums else FP32, "zero", *shape)
        if problem.has_dbias:
            add_packed("dbias", given, "nan", *rows, longest)
    return found


def tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return where sequences begin, and which pages they have, by the names of arguments."""
    found = pages.tables(problem)
    if problem.seqlen_knew:
        found["seqlen_k_ptr"] = np.array(append.lengths_before(problem), np.int32)
    elif problem.is_group_mode:
        found["seqstart_q_ptr"] = np.cumsum([0, *problem.seqlen_q]).astype(np.int32)
        if "kv_indptr" not in found:
            found["seqstart_k_ptr"] = np.cumsum([0, *problem.seqlen_k]).astype(np.int32)
    return found


def filled(
    problem: AttentionProblem, given: Tensors, o: F64 | None = None, lse: F64 | None = None
) -> dict[str, F64]:
    """Return the values that buffers are filled with, by their names.

    Args:
        o, lse: of the forward, for a backward.
    """
    names = ("q", "k", "v", "do", "bias", "alibi_slopes", "sink")
    values = {name: getattr(given, name) for name in names} | {"o": o, "lse": lse}
    if given.appended is not None:
        new = given.appended
        values |= {"knew": new.k, "vnew": new.v, "rotary_cos": new.cos, "rotary_sin": new.sin}
        values |= append.caches_before(problem, given)
    elif problem.layout.page_block_size:
        values |= {name: pages.laid_out(problem, values[name], FILLER) for name in ("k", "v")}
    return {name: value for name, value in values.items() if value is not None}
