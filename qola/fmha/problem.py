"""Problems for kernels, and the arrays that belong to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.errors import ExitCode, Finding, QolaError
from qola.reference.formats import F64
from qola.verify.problem import Problem
from qola.verify.tensors import Appended, Tensors, positions

__all__ = ["ArraysError", "Problem", "in_rows", "problem", "tensors_of", "with_appended"]


class ArraysError(QolaError):
    """Arrays that are not those of a problem."""

    exit_code = ExitCode.USAGE
    default_title = "the arrays are not those of the problem"


def problem(
    direction: str,
    dtype: str,
    *,
    rows: int | Sequence[int],
    columns: int | Sequence[int],
    heads: int,
    hdim: int,
    heads_k: int | None = None,
    hdim_v: int | None = None,
    batch: int | None = None,
    scale: float | None = None,
    **more: Any,
) -> Problem:
    """Return a problem: in batch mode with one length, in group mode with a list of them.

    Args:
        direction: fwd, fwd_splitkv, pagedkv_prefill, fwd_appendkv or bwd.
        dtype: bf16, fp16, fp32, fp8, ...
        rows, columns: lengths of Q, and of K and V; with `new`, a list of the latter alone.
        heads, heads_k: of Q, and of K and V, by default as many.
        hdim, hdim_v: head dimensions of Q and K, and of V, by default the same.
        batch: sequences in batch mode, by default 1.
        scale: by default 1 / sqrt(hdim).
        more: further fields of `Problem`.

    Raises:
        ArraysError: what is given is no problem.
    """
    group = not isinstance(rows, int)
    if isinstance(rows, int) and not isinstance(columns, int) and more.get("new"):
        # What appends has no group mode, and K and V of any length before.
        ends = tuple(columns)
        of = problem(
            direction,
            dtype,
            rows=rows,
            columns=max(ends),
            heads=heads,
            hdim=hdim,
            heads_k=heads_k,
            hdim_v=hdim_v,
            batch=len(ends),
            scale=scale,
            **more,
        )
        return replace(of, columns=ends)
    listed = [[n] * (batch or 1) if isinstance(n, int) else [*n] for n in (rows, columns)]
    shared = heads if heads_k is None else heads_k
    wrong = []
    if group == isinstance(columns, int) or (group and batch not in (None, len(listed[0]))):
        wrong.append(Finding("rows, columns", f"{rows}, {columns}", "two lengths, or two lists"))
    elif len(listed[0]) != len(listed[1]):
        found = f"{len(listed[0])} and {len(listed[1])} lengths"
        wrong.append(Finding("rows, columns", found, "as many of both"))
    if shared < 1 or heads % shared:
        found = f"{shared} for {heads} heads of Q"
        wrong.append(Finding("heads_k", found, "a number that divides them"))
    if wrong:
        raise ArraysError(wrong)
    return Problem(
        direction=direction,
        dtype=dtype,
        hdim_q=hdim,
        hdim_v=hdim if hdim_v is None else hdim_v,
        group=group,
        rows=tuple(listed[0]),
        columns=tuple(listed[1]),
        nhead_q=heads,
        nhead_k=shared,
        # As kernels get it.
        scale=float(np.float32(hdim**-0.5 if scale is None else scale)),
        **more,
    )


def tensors_of(
    of: Problem,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    do: NDArray[Any] | None = None,
    bias: NDArray[Any] | None = None,
    slopes: NDArray[Any] | None = None,
) -> Tensors:
    """Return a problem's tensors from arrays of the shapes of `Problem.shapes`.

    Args:
        bias: [bias_heads, rows, columns], the same for each sequence.
        slopes: of alibi, [batch, heads] or [heads].

    Raises:
        ArraysError: an array has another shape, is missing or too many; all that are.
    """
    shapes = of.shapes()
    wanted: dict[str, tuple[int, ...] | None] = {name: shapes[name] for name in ("q", "k", "v")}
    wanted["do"] = shapes["o"] if of.direction == "bwd" else None
    total = sum(of.rows) if of.group else of.rows[0]
    has_bias = of.bias == "bias"
    wanted["bias"] = (of.bias_heads, total, max(of.columns)) if has_bias else None
    heads = (of.batch, of.nhead_q) if of.batched_slopes else (of.nhead_q,)
    wanted["slopes"] = heads if of.bias == "alibi" else None
    plain = _checked(wanted, {"q": q, "k": k, "v": v, "do": do, "bias": bias, "slopes": slopes})
    none = np.zeros(0)
    turned = {
        name: none if (array := plain[name]) is None else in_rows(of, array)
        for name in ("q", "k", "v", "do")
    }
    starts_q, starts_k = ((0, *map(int, np.cumsum(lengths))) for lengths in (of.rows, of.columns))
    return Tensors(
        turned["q"],
        turned["k"],
        turned["v"],
        turned["do"],
        bias=plain["bias"],
        slopes=plain["slopes"],
        starts_q=starts_q,
        starts_k=starts_k,
    )


def with_appended(
    of: Problem,
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
        ArraysError: as `tensors_of`.
    """
    alone = replace(of, columns=(of.new,) * of.batch).shapes()
    angles = (positions(of), of.rotary // 2) if of.rope != "no" else None
    wanted = {"k_new": alone["k"], "v_new": alone["v"], "cos": angles, "sin": angles}
    plain = _checked(wanted, {"k_new": k_new, "v_new": v_new, "cos": cos, "sin": sin})
    none = np.zeros((0, 0))
    cos_, sin_ = (none if plain[name] is None else plain[name] for name in ("cos", "sin"))
    k, v = (in_rows(of, plain[name]) for name in ("k_new", "v_new"))
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
        raise ArraysError(wrong)
    return {
        name: None if array is None else np.asarray(array).astype(np.float64)
        for name, array in given.items()
    }


def _shape(shape: tuple[int, ...] | None) -> str:
    return "no such array for this problem" if shape is None else f"shape {shape}"


def in_rows(of: Problem, array: F64) -> F64:
    """Return an array with its rows before its heads; the same array turned back again."""
    return np.swapaxes(array, 1, 2) if of.order == "bhsd" and not of.group else array
