"""Computes the expected results of a problem, and compares a kernel's results with them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.attention import AttentionProblem
from qola.reference.attention import Forward, Sequence, forward, gradients
from qola.reference.formats import F64, FP32, rounded
from qola.reference.limits import Arithmetic, backward_limits, forward_limits
from qola.verify import append
from qola.verify.tensors import Result, Tensors


@dataclass(frozen=True)
class Verdict:
    """The comparison of one result.

    Attributes:
        share: the largest error, as a share of its limit; infinite where a number is none.
        over: elements beyond the limit.
        place: index of the largest error; found and exact are the values there.
    """

    name: str
    share: float
    over: int
    compared: int
    place: tuple[int, ...]
    found: float
    exact: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether no element is beyond its limit."""
        return self.over == 0

    def __str__(self) -> str:
        """Return the verdict in words."""
        if self.passed:
            return f"{self.name}: {self.compared} elements, errors up to {self.share:.2f} of limits"
        return (
            f"{self.name}{list(self.place)} is {self.found:.6g} in place of {self.exact:.6g}, "
            f"at most {self.limit:.2g} off; {self.over} of {self.compared} elements are beyond"
        )


def left_by_forward(
    problem: AttentionProblem, given: Tensors, arithmetic: Arithmetic
) -> list[Forward]:
    """Return O and LSE of each sequence as a backward reads them."""
    found = [forward(problem.attention, of) for of in given.sequences(problem)]
    return [Forward(rounded(f.o, arithmetic.out), rounded(f.lse, FP32)) for f in found]


def expected(
    problem: AttentionProblem, given: Tensors, arithmetic: Arithmetic, left: Sequences[Forward] = ()
) -> dict[str, Result]:
    """Return the results of a problem by name, in the layout of `Tensors`.

    o, lse of a forward; dq, dk, dv, dbias of a backward; k, v, q of fwd_appendkv, in the layout of
    memory. lse is [batch, nhead_q, seqlen_q], in group mode [nhead_q, seqlen_q]; dbias has one
    more dimension, seqlen_k.

    Args:
        left: for a backward, O and LSE of each sequence; by default those of the reference.
    """
    if problem.seqlen_knew:
        return append.expected(problem, given, arithmetic.low)
    sequences = given.sequences(problem)
    if problem.direction != "bwd":
        parts = [_forward(problem, of, arithmetic) for of in sequences]
    else:
        left = left or left_by_forward(problem, given, arithmetic)
        parts = [
            _backward(problem, of, do, one, arithmetic)
            for of, do, one in zip(sequences, by_sequence(problem, given), left, strict=True)
        ]
    widest, found = max(problem.seqlen_k), {}
    for name in parts[0]:
        own = [vars(part[name]) for part in parts]
        found[name] = Result(
            **{of: joined(problem, [one[of] for one in own], name, widest) for of in own[0]}
        )
    return found


def by_sequence(problem: AttentionProblem, given: Tensors) -> list[F64]:
    """Return dO of each sequence."""
    if not problem.is_group_mode:
        return list(given.do)
    return np.split(given.do, given.starts_q[1:-1])


def _forward(problem: AttentionProblem, of: Sequence, arithmetic: Arithmetic) -> dict[str, Result]:
    exact = forward(problem.attention, of)
    o, lse = forward_limits(problem.attention, of, arithmetic)
    skipped = problem.is_group_mode and 0 < problem.min_seqlen_q >= len(of.q)
    found = {"o": Result(exact.o, o, np.full(o.shape, not skipped))}
    if problem.return_lse:
        found["lse"] = Result(exact.lse, lse, np.full(lse.shape, not skipped))
    return found


def _backward(
    problem: AttentionProblem, of: Sequence, do: F64, left: Forward, arithmetic: Arithmetic
) -> dict[str, Result]:
    steps = gradients(problem.attention, of, do, left.o, left.lse)
    exact = steps.results()
    written = len(of.q) > 0 and len(of.k) > 0
    found = {}
    for name, limit in backward_limits(steps, left.o, left.lse, arithmetic).items():
        compared = np.full(limit.shape, written)
        if name == "dbias":
            # Tiles that a mask hides altogether are not written.
            compared &= steps.steps.allowed
        if name != "dbias" or problem.has_dbias:
            found[name] = Result(getattr(exact, name), limit, compared)
    return found


def joined(
    problem: AttentionProblem, parts: list[NDArray[Any]], name: str, widest: int
) -> NDArray[Any]:
    """Return a result's arrays of each sequence as one tensor, with `widest` columns of K."""
    if not problem.is_group_mode:
        return np.stack(parts)
    if name == "dbias":
        parts = [np.pad(a, ((0, 0), (0, 0), (0, widest - a.shape[2]))) for a in parts]
    return np.concatenate(parts, axis=1 if name in ("lse", "dbias") else 0)


def compare(results: Mapping[str, F64], wanted: Mapping[str, Result]) -> list[Verdict]:
    """Return a verdict for each of the expected results; both are in the layout of `expected`.

    Raises:
        ValueError: a result is missing, or of another shape.
    """
    shapes = {name: results[name].shape if name in results else None for name in wanted}
    for name, one in wanted.items():
        if shapes[name] != one.exact.shape:
            raise ValueError(f"{name}: {shapes[name]} in place of {one.exact.shape}")
    return [_verdict(name, results[name], one) for name, one in sorted(wanted.items())]


def _verdict(name: str, got: F64, one: Result) -> Verdict:
    same = got == one.exact  # infinities
    with np.errstate(invalid="ignore"):
        share = np.abs(got - one.exact) / one.limit
    share = np.where(same | ~one.compared, 0.0, np.where(np.isnan(share), np.inf, share))
    compared = int(one.compared.sum())
    if not share.size:
        return Verdict(name, 0.0, 0, 0, (), 0.0, 0.0, 0.0)
    place = tuple(int(n) for n in np.unravel_index(int(np.argmax(share)), share.shape))
    return Verdict(
        name,
        float(share[place]),
        int((share > 1).sum()),
        compared,
        place,
        float(got[place]),
        float(one.exact[place]),
        float(one.limit[place]),
    )
