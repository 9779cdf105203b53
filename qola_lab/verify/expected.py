"""Computes the expected results of a problem, and compares a kernel's results with them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64, FP32, rounded
from qola_lab.problems import AttentionProblem
from qola_lab.reference.attention import Forward, Sequence, forward
from qola_lab.reference.blas import one_thread
from qola_lab.reference.limits import Arithmetic, backward_with_limits, forward_with_limits
from qola_lab.verify import append
from qola_lab.verify.tensors import Result, Tensors

#: Elements that are compared together: differences stay in the processor's cache.
_TOGETHER = 1 << 16


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
    with one_thread():
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
    if problem.direction == "bwd":
        left = left or left_by_forward(problem, given, arithmetic)
    with one_thread():
        if problem.direction != "bwd":
            parts = [_forward(problem, of, arithmetic) for of in sequences]
        else:
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
    exact, limits = forward_with_limits(problem.attention, of, arithmetic)
    skipped = problem.is_group_mode and 0 < problem.min_seqlen_q >= len(of.q)
    names = ("o", "lse") if problem.return_lse else ("o",)
    return {
        name: Result(
            getattr(exact, name),
            getattr(limits, name),
            np.full(getattr(exact, name).shape, not skipped),
        )
        for name in names
    }


def _backward(
    problem: AttentionProblem, of: Sequence, do: F64, left: Forward, arithmetic: Arithmetic
) -> dict[str, Result]:
    sums = problem.attention, of, do, left, arithmetic
    exact, limits = backward_with_limits(*sums, dbias=problem.has_dbias)
    written = len(of.q) > 0 and len(of.k) > 0
    found = {}
    for name in ("dq", "dk", "dv", *(["dbias"] if problem.has_dbias else [])):
        limit = getattr(limits, name)
        compared = np.full(limit.shape, written)
        if name == "dbias":
            # Tiles that a mask hides altogether are not written.
            compared &= problem.mask.allowed(len(of.q), len(of.k))
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
    compared, size = int(np.count_nonzero(one.compared)), got.size
    if not size:
        return Verdict(name, 0.0, 0, 0, (), 0.0, 0.0, 0.0)
    found, exact, limit = (array.reshape(-1) for array in (got, one.exact, one.limit))
    flags = one.compared.reshape(-1)
    over, largest, place = 0, -1.0, 0
    for first in range(0, size, _TOGETHER):
        own = slice(first, first + _TOGETHER)
        share = _shares(found[own], exact[own], limit[own], flags[own])
        over += int(np.count_nonzero(share > 1))
        here = int(np.argmax(share))
        if share[here] > largest:
            largest, place = float(share[here]), first + here
    where = tuple(int(n) for n in np.unravel_index(place, got.shape))
    values = (float(array[place]) for array in (found, exact, limit))
    return Verdict(name, largest, over, compared, where, *values)


def _shares(got: F64, exact: F64, limit: F64, compared: NDArray[np.bool_]) -> F64:
    """Return errors as shares of their limits, infinite where a number is none."""
    same = got == exact  # infinities
    with np.errstate(invalid="ignore"):
        share = np.abs(got - exact) / limit
    return np.where(same | ~compared, 0.0, np.where(np.isnan(share), np.inf, share))
