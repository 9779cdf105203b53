"""Attention in float64 over arrays, with which kernels are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola_base.errors import Finding
from qola_base.formats import F64, FP32
from qola_lab.problems import AttentionProblem, ProblemError
from qola_lab.reference import attention
from qola_lab.reference.attention import Gradients, Softmax
from qola_lab.verify.expected import by_sequence, cache_by_sequence, expected_append, joined
from qola_lab.verify.tensors import Appended as AppendedRows
from qola_lab.verify.tensors import Tensors, positions

Array = NDArray[Any]


@dataclass(frozen=True)
class Forward:
    """Results of a forward.

    Attributes:
        o, lse: of the shapes of `AttentionProblem.shapes`; LSE is a natural logarithm.
        steps: intermediates from Q and K to P for each sequence, if requested.
    """

    o: F64
    lse: F64
    steps: tuple[Softmax, ...] = ()


@dataclass(frozen=True)
class Backward:
    """Results of a backward.

    Attributes:
        dq: of the shape of Q.
        dk, dv: of those of K and V, but with a head for each of Q, as kernels write them.
        dbias: gradient of the logits, [batch, heads, rows, columns], in group mode
            [heads, rows, columns].
        steps: intermediates from dO to the gradients for each sequence, if requested.
    """

    dq: F64
    dk: F64
    dv: F64
    dbias: F64
    steps: tuple[Gradients, ...] = ()


@dataclass(frozen=True)
class Appended:
    """Q, K and V after an append, of the shapes of `AttentionProblem.shapes`."""

    q: F64
    k: F64
    v: F64


def append_kv(
    problem: AttentionProblem, q: Array, k: Array, v: Array, *new: Array, **angles: Array
) -> Appended:
    """Append rows to K and V; arrays are those of `Runner.append_kv`.

    Rows of K and V behind the end of a sequence are 0.

    Raises:
        ProblemError: the arrays are not those of the problem.
    """
    plain = replace(problem, layout=replace(problem.layout, page_block_size=0))
    given = with_appended(problem, tensors_of(problem, q, k, v), *new, **angles)
    found = {name: one.exact for name, one in expected_append(plain, given, FP32).items()}
    whole = {name: cache_by_sequence(plain, found[name]) for name in ("k", "v")}
    return Appended(*(in_rows(problem, one) for one in (found.get("q", given.q), *whole.values())))


def forward(
    problem: AttentionProblem,
    q: Array,
    k: Array,
    v: Array,
    *,
    intermediates: bool = False,
    **biases: Array | None,
) -> Forward:
    """Return O and LSE of a problem; arrays are those of `tensors_of`.

    Raises:
        ProblemError: the arrays are not those of the problem.
    """
    given = tensors_of(replace(problem, direction="fwd"), q, k, v, **biases)
    sequences = given.sequences(problem)
    found = [attention.forward(problem.attention, one) for one in sequences]
    steps = (attention.softmax(problem.attention, one) for one in sequences)
    return Forward(
        in_rows(problem, joined(problem, [one.o for one in found], "o", 0)),
        joined(problem, [one.lse for one in found], "lse", 0),
        tuple(steps) if intermediates else (),
    )


def backward(
    problem: AttentionProblem,
    q: Array,
    k: Array,
    v: Array,
    do: Array,
    *,
    intermediates: bool = False,
    **biases: Array | None,
) -> Backward:
    """Return the true gradients of a problem of direction bwd; arrays are those of `tensors_of`.

    Raises:
        ProblemError: the arrays are not those of the problem.
    """
    given = tensors_of(problem, q, k, v, do, **biases)
    pairs = list(zip(given.sequences(problem), by_sequence(problem, given), strict=True))
    found = [attention.backward(problem.attention, one, its) for one, its in pairs]
    steps = (attention.gradients(problem.attention, one, its) for one, its in pairs)

    def whole(name: str) -> F64:
        return joined(problem, [getattr(one, name) for one in found], name, max(problem.seqlen_k))

    dq, dk, dv = (in_rows(problem, whole(name)) for name in ("dq", "dk", "dv"))
    return Backward(dq, dk, dv, whole("dbias"), tuple(steps) if intermediates else ())


def tensors_of(
    problem: AttentionProblem,
    q: Array,
    k: Array,
    v: Array,
    do: Array | None = None,
    bias: Array | None = None,
    alibi_slopes: Array | None = None,
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
    given = {"q": q, "k": k, "v": v, "do": do, "bias": bias, "alibi_slopes": alibi_slopes}
    plain = _checked(wanted, given)
    for name in ("q", "k", "v", "do"):
        plain[name] = np.zeros(0) if plain[name] is None else in_rows(problem, plain[name])
    starts_q, starts_k = (
        (0, *map(int, np.cumsum(lengths))) for lengths in (problem.seqlen_q, problem.seqlen_k)
    )
    return Tensors(**plain, starts_q=starts_q, starts_k=starts_k)


def with_appended(
    problem: AttentionProblem,
    given: Tensors,
    k_new: Array,
    v_new: Array,
    cos: Array | None = None,
    sin: Array | None = None,
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
    turns = (np.zeros((0, 0)) if plain[n] is None else plain[n] for n in ("cos", "sin"))
    k, v = (in_rows(problem, plain[name]) for name in ("k_new", "v_new"))
    return replace(given, appended=AppendedRows(k, v, *turns))


def _checked(
    wanted: Mapping[str, tuple[int, ...] | None], given: Mapping[str, Array | None]
) -> dict[str, Any]:
    """Check the shapes of arrays and return them in float64; None for an omitted array."""
    wrong = []
    for name, shape in wanted.items():
        array = given[name]
        has = None if array is None else array.shape
        if has != shape:
            expected = f"shape {shape}" if shape else "no such array for this problem"
            wrong.append(Finding(name, f"shape {has}" if has else "left out", expected))
    if wrong:
        raise ProblemError(wrong, "the arrays do not fit the problem")
    return {
        name: None if array is None else np.asarray(array).astype(np.float64)
        for name, array in given.items()
    }


def in_rows(problem: AttentionProblem, array: F64) -> F64:
    """Swap rows and heads of an array in order bhsd; a second call swaps them back."""
    turned = problem.layout.order == "bhsd" and not problem.is_group_mode
    return np.swapaxes(array, 1, 2) if turned else array
