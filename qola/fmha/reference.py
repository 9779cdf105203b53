"""Attention in float64 over arrays, with which kernels are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from qola.attention import AttentionProblem
from qola.fmha.arrays import in_rows, tensors_of, with_appended
from qola.reference import attention
from qola.reference.attention import Gradients, Softmax
from qola.reference.formats import F64, FP32
from qola.verify import append
from qola.verify.expected import by_sequence, joined

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
    problem: AttentionProblem,
    q: Array,
    k: Array,
    v: Array,
    k_new: Array,
    v_new: Array,
    *,
    cos: Array | None = None,
    sin: Array | None = None,
) -> Appended:
    """Append rows to K and V; arrays are those of `tensors_of` and `with_appended`.

    Rows of K and V that no sequence has are 0.

    Raises:
        ProblemError: they are not those of the problem.
    """
    plain = replace(problem, layout=replace(problem.layout, page_block_size=0))
    given = with_appended(problem, tensors_of(problem, q, k, v), k_new, v_new, cos, sin)
    found = {name: one.exact for name, one in append.expected(plain, given, FP32).items()}
    whole = {name: append.by_sequence(plain, found[name]) for name in ("k", "v")}
    return Appended(*(in_rows(problem, one) for one in (found.get("q", given.q), *whole.values())))


def forward(
    problem: AttentionProblem,
    q: Array,
    k: Array,
    v: Array,
    *,
    bias: Array | None = None,
    alibi_slopes: Array | None = None,
    intermediates: bool = False,
) -> Forward:
    """Return O and LSE of a problem; arrays are those of `tensors_of`.

    Raises:
        ProblemError: they are not those of the problem.
    """
    given = tensors_of(replace(problem, direction="fwd"), q, k, v, None, bias, alibi_slopes)
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
    bias: Array | None = None,
    alibi_slopes: Array | None = None,
    intermediates: bool = False,
) -> Backward:
    """Return the true gradients of a problem of direction bwd; arrays are those of `tensors_of`.

    Raises:
        ProblemError: they are not those of the problem.
    """
    given = tensors_of(problem, q, k, v, do, bias, alibi_slopes)
    pairs = list(zip(given.sequences(problem), by_sequence(problem, given), strict=True))
    found = [attention.backward(problem.attention, one, its) for one, its in pairs]
    steps = (attention.gradients(problem.attention, one, its) for one, its in pairs)

    def whole(name: str) -> F64:
        return joined(problem, [getattr(one, name) for one in found], name, max(problem.seqlen_k))

    dq, dk, dv = (in_rows(problem, whole(name)) for name in ("dq", "dk", "dv"))
    return Backward(dq, dk, dv, whole("dbias"), tuple(steps) if intermediates else ())
