"""The arrays of a problem, in the shapes of `AttentionProblem.shapes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem, ProblemError
from qola.errors import Finding
from qola.reference.formats import F64
from qola.verify.tensors import Appended, Tensors, positions

_TITLE = "the arrays do not fit the problem"


def tensors_of(
    problem: AttentionProblem,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    do: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    alibi_slopes: NDArray[Any] | None = None,
) -> Tensors:
    """Return a problem's tensors from arrays of the shapes of `AttentionProblem.shapes`.

    Args:
        bias: [bias_heads, rows, columns], the same for each sequence.
        alibi_slopes: [batch, heads] or [heads].

    Raises:
        ProblemError: an array has another shape, is missing or too many; all that are.
    """
    shapes = problem.shapes()
    wanted: dict[str, tuple[int, ...] | None] = {name: shapes[name] for name in ("q", "k", "v")}
    wanted["do"] = shapes["o"] if problem.direction == "bwd" else None
    total = sum(problem.seqlen_q) if problem.is_group_mode else problem.seqlen_q[0]
    has_bias = problem.bias_type == "bias"
    wanted["bias"] = (problem.nhead_bias, total, max(problem.seqlen_k)) if has_bias else None
    heads = (problem.batch, problem.nhead_q) if problem.batched_alibi_slopes else (problem.nhead_q,)
    wanted["alibi_slopes"] = heads if problem.bias_type == "alibi" else None
    plain = _checked(
        wanted, {"q": q, "k": k, "v": v, "do": do, "bias": bias, "alibi_slopes": alibi_slopes}
    )
    none = np.zeros(0)
    turned = {
        name: none if (array := plain[name]) is None else in_rows(problem, array)
        for name in ("q", "k", "v", "do")
    }
    starts_q, starts_k = (
        (0, *map(int, np.cumsum(lengths))) for lengths in (problem.seqlen_q, problem.seqlen_k)
    )
    return Tensors(
        turned["q"],
        turned["k"],
        turned["v"],
        turned["do"],
        bias=plain["bias"],
        alibi_slopes=plain["alibi_slopes"],
        starts_q=starts_q,
        starts_k=starts_k,
    )


def with_appended(
    problem: AttentionProblem,
    given: Tensors,
    k_new: NDArray[Any],
    v_new: NDArray[Any],
    cos: NDArray[Any] | None = None,
    sin: NDArray[Any] | None = None,
) -> Tensors:
    """Return the tensors of a problem with the rows that are appended.

    Args:
        k_new, v_new: [batch, new, heads, hdim], or heads before rows.
        cos, sin: [positions, rotary / 2] where rows are rotated: row n is for the n-th row of K.

    Raises:
        ProblemError: as `tensors_of`.
    """
    new = replace(problem, seqlen_k=(problem.seqlen_knew,) * problem.batch).shapes()
    angles = (positions(problem), problem.rotary_dim // 2) if problem.rope_type != "no" else None
    wanted = {"k_new": new["k"], "v_new": new["v"], "cos": angles, "sin": angles}
    plain = _checked(wanted, {"k_new": k_new, "v_new": v_new, "cos": cos, "sin": sin})
    none = np.zeros((0, 0))
    cos_, sin_ = (none if plain[name] is None else plain[name] for name in ("cos", "sin"))
    k, v = (in_rows(problem, plain[name]) for name in ("k_new", "v_new"))
    return replace(given, appended=Appended(k, v, cos_, sin_))


def _checked(
    wanted: Mapping[str, tuple[int, ...] | None], given: Mapping[str, NDArray[Any] | None]
) -> dict[str, Any]:
    """Return arrays in float64, each of its shape; None for one that is left out."""
    wrong = []
    for name, shape in wanted.items():
        array = given[name]
        has = None if array is None else array.shape
        if has != shape:
            wrong.append(Finding(name, f"shape {has}" if has else "left out", _shape(shape)))
    if wrong:
        raise ProblemError(wrong, _TITLE)
    return {
        name: None if array is None else np.asarray(array).astype(np.float64)
        for name, array in given.items()
    }


def _shape(shape: tuple[int, ...] | None) -> str:
    return "no such array for this problem" if shape is None else f"shape {shape}"


def in_rows(problem: AttentionProblem, array: F64) -> F64:
    """Swap rows and heads of an array in order bhsd; a second call swaps them back."""
    return (
        np.swapaxes(array, 1, 2)
        if problem.layout.order == "bhsd" and not problem.is_group_mode
        else array
    )
