"""Rows appended to K and V, and rotated with those of Q: right results.

seqlen_k counts the rows after seqlen_knew rows were appended; sequences may differ in it in batch
mode too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64, FP32, Format
from qola_lab.problems import AttentionProblem, Layout
from qola_lab.verify.memory import laid_out, lengths_before, rows_of_k
from qola_lab.verify.tensors import Appended, Result, Tensors

#: Limit of values that a kernel must not change.
_NOTHING = 2.0**-99


def expected(problem: AttentionProblem, given: Tensors, of: Format) -> dict[str, Result]:
    """Return K and V afterwards, and Q if it is rotated, as they lie in memory in a format."""
    assert given.appended is not None
    new = given.appended
    k, v = given.k.copy(), given.v.copy()
    k_off = np.full(k.shape, _NOTHING)
    q, q_off = np.empty_like(given.q), np.empty_like(given.q)
    for one, place in enumerate(lengths_before(problem)):
        rows = slice(place, place + problem.seqlen_knew)
        at = place + np.arange(problem.seqlen_knew)
        k[one, rows], k_off[one, rows] = _rotated(problem, new, new.k[one], at, of)
        v[one, rows] = new.v[one]
        # Without a mask all rows of Q stand where the first new row of K does.
        at = place + np.arange(problem.seqlen_q[0]) * (problem.mask_type != "no")
        q[one], q_off[one] = _rotated(problem, new, given.q[one], at, of)
    found = {
        "k": _result(laid_out(problem, k), laid_out(problem, k_off, _NOTHING)),
        "v": _result(laid_out(problem, v), _NOTHING),
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


def by_sequence(problem: AttentionProblem, tensor: F64) -> F64:
    """Return K or V as it lies in memory, [batch, rows, heads, hdim]; 0 in rows of no sequence."""
    heads = tensor.shape[-2:]
    own = tensor.reshape(-1, *heads)[rows_of_k(problem)]
    plain = replace(problem, layout=Layout())
    return laid_out(plain, own, 0.0)
