"""Rows appended to K and V, and rotated with those of Q: memory, arguments and right results.

seqlen_k counts the rows after seqlen_knew rows were appended; sequences may differ in it in batch
mode too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem, formats
from qola.attention.ck import ROPE_TYPES
from qola.reference.formats import F64, FP32, Format
from qola.verify import pages
from qola.verify.buffer import FILLER, Buffer, Filled, of_batch, of_pages
from qola.verify.tensors import Appended, Result, Tensors, positions

#: Limit of values that a kernel must not change.
_NOTHING = 2.0**-99


def buffers(problem: AttentionProblem, arch: str) -> dict[str, Buffer]:
    """Return the tensors of a problem, by the names that Composable Kernel's arguments have."""
    of, _ = formats(problem.dtype, arch)
    heads, q, v = problem.nhead_k, problem.hdim_q, problem.hdim_v
    rotates = problem.rope_type != "no"
    of_q: Filled = "updated" if rotates else "values"
    found = [of_batch(problem, "q", of, problem.seqlen_q[0], problem.nhead_q, q, of_q)]
    for name, hdim in (("k", q), ("v", v)):
        if problem.layout.page_block_size:
            found.append(of_pages(problem, name, of, heads, hdim, "updated"))
        else:
            most = max(problem.seqlen_k)
            found.append(of_batch(problem, name, of, most, heads, hdim, "updated"))
        found.append(
            of_batch(problem, f"{name}new", of, problem.seqlen_knew, heads, hdim, "values")
        )
    if rotates:
        shape = (positions(problem), problem.rotary_dim // 2)
        found += [Buffer(n, of, shape, (shape[1], 1)) for n in ("rotary_cos", "rotary_sin")]
    return {buffer.name: buffer for buffer in found}


def tables(problem: AttentionProblem) -> dict[str, NDArray[np.int32]]:
    """Return how many rows there are before, and the pages, by the names of arguments."""
    before = np.array(_before(problem), np.int32)
    return {"seqlen_k_ptr": before, **pages.tables(problem)}


def entry_values(problem: AttentionProblem, arch: str) -> dict[str, Any]:
    """Return the values of a problem by the names of arguments, but for addresses."""
    values: dict[str, Any] = {
        "q_dtype_str": problem.dtype,
        "rope_type": [*ROPE_TYPES].index(problem.rope_type),
        "batch": problem.batch,
        "nhead_q": problem.nhead_q,
        "nhead_k": problem.nhead_k,
        "hdim_q": problem.hdim_q,
        "hdim_v": problem.hdim_v,
        "seqlen_q": problem.seqlen_q[0],
        "seqlen_knew": problem.seqlen_knew,
        "rotary_dim": problem.rotary_dim,
        "has_mask": problem.mask_type != "no",
        **pages.sizes(problem),
    }
    for name, buffer in buffers(problem, arch).items():
        if name.startswith("rotary"):
            continue
        row, head = buffer.strides[-3], buffer.strides[-2]
        values[f"stride_{name}"], values[f"nhead_stride_{name}"] = row, head
        paged = len(buffer.shape) == 3
        values[f"batch_stride_{name}"] = (
            problem.layout.page_block_size * row if paged else buffer.strides[0]
        )
    return values


def filled(problem: AttentionProblem, given: Tensors) -> dict[str, F64]:
    """Return the values that buffers are filled with, by their names."""
    new = _new(given)
    found = {"q": given.q, "knew": new.k, "vnew": new.v}
    for name, cache in (("k", given.k), ("v", given.v)):
        before = cache.copy()
        for of, place in zip(before, _before(problem), strict=True):
            of[place:] = FILLER
        found[name] = _laid_out(problem, before)
    if problem.rope_type != "no":
        found |= {"rotary_cos": new.cos, "rotary_sin": new.sin}
    return found


def expected(problem: AttentionProblem, given: Tensors, of: Format) -> dict[str, Result]:
    """Return K and V as they are afterwards, and Q where it is rotated, as they lie in memory.

    Args:
        of: format of all of them.
    """
    new = _new(given)
    k, v = given.k.copy(), given.v.copy()
    k_off = np.full(k.shape, _NOTHING)
    q, q_off = np.empty_like(given.q), np.empty_like(given.q)
    for one, place in enumerate(_before(problem)):
        rows = slice(place, place + problem.seqlen_knew)
        at = place + np.arange(problem.seqlen_knew)
        k[one, rows], k_off[one, rows] = _rotated(problem, new, new.k[one], at, of)
        v[one, rows] = new.v[one]
        # Without a mask all rows of Q stand where the first new row of K does.
        at = place + np.arange(problem.seqlen_q[0]) * (problem.mask_type != "no")
        q[one], q_off[one] = _rotated(problem, new, given.q[one], at, of)
    found = {
        "k": _result(_laid_out(problem, k), _laid_out(problem, k_off, _NOTHING)),
        "v": _result(_laid_out(problem, v), _NOTHING),
    }
    return found | ({"q": _result(q, q_off)} if problem.rope_type != "no" else {})


def _rotated(
    problem: AttentionProblem, new: Appended, x: F64, at: NDArray[np.int64], of: Format
) -> tuple[F64, F64]:
    """Return rows rotated by their positions, and how far a kernel's may be off.

    It computes in float32, and rounds once, to nearest or toward zero.
    """
    result, off = x.copy(), np.full(x.shape, _NOTHING)
    if problem.rope_type == "no":
        return result, off
    size = problem.rotary_dim
    left, right = slice(0, size // 2), slice(size // 2, size)
    if problem.rope_type == "inter":
        left, right = slice(0, size, 2), slice(1, size, 2)
    cos, sin = new.cos[at][:, None, :], new.sin[at][:, None, :]
    for own, other, sign in ((left, right, -1.0), (right, left, 1.0)):
        result[..., own] = x[..., own] * cos + sign * x[..., other] * sin
        inexact = 3 * FP32.unit() * (np.abs(x[..., own] * cos) + np.abs(x[..., other] * sin))
        off[..., own] = inexact + _step(np.abs(result[..., own]) + inexact, of)
    return result, off


def _step(magnitude: F64, of: Format) -> F64:
    """Return the distance from one number of a format to the next."""
    exponents = np.maximum(np.frexp(magnitude)[1] - 1, of.lowest)
    step: F64 = np.ldexp(1.0, exponents - (of.digits - 1))
    return step


def _result(exact: F64, off: F64 | float) -> Result:
    limit = np.broadcast_to(np.asarray(off), exact.shape)
    return Result(exact, limit, np.ones(exact.shape, np.bool_))


def _laid_out(problem: AttentionProblem, tensor: F64, others: float = FILLER) -> F64:
    """Return K or V of sequences as it lies in memory.

    Args:
        others: value of rows that belong to no sequence.
    """
    own = [of[:count] for of, count in zip(tensor, problem.seqlen_k, strict=True)]
    if problem.layout.page_block_size:
        return pages.laid_out(problem, np.concatenate(own), others)
    whole = np.full(tensor.shape, others)
    for of, rows in zip(whole, own, strict=True):
        of[: len(rows)] = rows
    return whole


def by_sequence(problem: AttentionProblem, tensor: F64) -> F64:
    """Return K or V as it lies in memory, [batch, rows, heads, hdim]; 0 in rows of no sequence."""
    if problem.layout.page_block_size:
        own = np.split(tensor[pages.rows(problem)], np.cumsum(problem.seqlen_k)[:-1])
    else:
        own = [of[:count] for of, count in zip(tensor, problem.seqlen_k, strict=True)]
    whole = np.zeros((problem.batch, max(problem.seqlen_k), *tensor.shape[-2:]))
    for of, its in zip(whole, own, strict=True):
        of[: len(its)] = its
    return whole


def _before(problem: AttentionProblem) -> list[int]:
    """Return the rows that K and V of each sequence have before."""
    return [columns - problem.seqlen_knew for columns in problem.seqlen_k]


def _new(given: Tensors) -> Appended:
    assert given.appended is not None
    return given.appended
