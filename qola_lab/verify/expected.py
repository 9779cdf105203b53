"""Computes the expected results of a problem, compares results, and finds the wrong kernel.

Several kernels compute a backward or a split-KV forward, and pass values in buffers. A kernel is
judged by what it makes of the values that it reads, so that a wrong result counts against the
kernel that made it wrong, and for the kernels that followed it correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64, FP32, Format, rounded
from qola_lab.problems import AttentionProblem, Layout
from qola_lab.reference.attention import Forward, Sequence, forward
from qola_lab.reference.blas import one_thread
from qola_lab.reference.limits import Arithmetic, backward_with_limits, forward_with_limits
from qola_lab.verify.case import Call, Launch
from qola_lab.verify.tensors import (
    Appended,
    Result,
    Tensors,
    address_names,
    laid_out,
    lengths_before,
    rows_of_k,
)

BETWEEN = ("d", "dq_acc", "o_acc", "lse_acc")
"""Buffers that a kernel writes and another one of the call reads."""

#: Elements that are compared together: differences stay in the processor's cache.
_TOGETHER = 1 << 16
#: Limit of values that a kernel must not change.
_NOTHING = 2.0**-99
#: Errors of float32 in a sum of values, as a share of the sum of their sizes.
_COMBINED = 2.0**-20
#: Results that do not depend on D, the row sums of O * dO.
_WITHOUT_D = frozenset({"dv"})


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
        return expected_append(problem, given, arithmetic.low)
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


def expected_append(problem: AttentionProblem, given: Tensors, of: Format) -> dict[str, Result]:
    """Return K and V after an append, and Q if it is rotated, as they lie in memory.

    seqlen_k counts the rows after seqlen_knew rows were appended; sequences may differ in it in
    batch mode too.

    Args:
        of: format of the tensors.
    """
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


def cache_by_sequence(problem: AttentionProblem, tensor: F64) -> F64:
    """Return K or V as it lies in memory, [batch, rows, heads, hdim]; 0 in rows of no sequence."""
    heads = tensor.shape[-2:]
    own = tensor.reshape(-1, *heads)[rows_of_k(problem)]
    plain = replace(problem, layout=Layout())
    return laid_out(plain, own, 0.0)


def judge(
    call: Call,
    found: Mapping[str, F64],
    wanted: Mapping[str, Result],
    verdicts: Sequences[Verdict],
    row_sums: Result | None,
    arithmetic: Arithmetic,
) -> tuple[list[Verdict], dict[str, tuple[str, ...]]]:
    """Return further verdicts, and by verdict the kernels that it is evidence for or against.

    Args:
        found: values of results and of buffers in `BETWEEN`.
        verdicts: of the results, none if the run ended early.
        row_sums: D of a backward.
        arithmetic: of the kernels.
    """
    judged: dict[str, tuple[str, ...]] = {}
    more: list[Verdict] = []
    for verdict in verdicts:
        users = _users(call, verdict.name)
        judged[verdict.name] = users[-1].names if users and not verdict.passed else call.names
    wrong = [verdict.name for verdict in verdicts if not verdict.passed]
    if wrong:
        # A right result says nothing of the kernels that never touch it.
        for verdict in verdicts:
            if verdict.passed and (users := _users(call, verdict.name)):
                judged[verdict.name] = tuple(name for one in users for name in one.names)
    if verdicts and not wrong:
        return more, judged
    of_d = _users(call, "d")
    if row_sums and len(of_d) > 1 and "d" in found:
        (verdict,) = compare({"d": found["d"]}, {"d": row_sums})
        more.append(verdict)
        judged["d"] = of_d[0].names
        if not verdict.passed:
            affected = [name for name in wrong if name not in _WITHOUT_D]
            judged |= dict.fromkeys(affected, of_d[0].names)
            wrong = [name for name in wrong if name in _WITHOUT_D]
    for buffer, names in (("dq_acc", ("dq",)), ("o_acc", ("o", "lse"))):
        users = _users(call, buffer)
        if not users or users[0] is users[-1]:
            continue
        maker, reader = users[0].names, users[-1].names
        combined = _combine(call.problem, found, buffer)
        for name in set(names) & set(wrong):
            value, size = combined[name]
            if value.shape != found[name].shape:
                # A layout that only assembly kernels have.
                judged[name] = maker if set(wrong) - set(names) else maker + reader
                continue
            limit = arithmetic.limit(_COMBINED * size, value, rounds=name != "lse")
            (made,) = compare({name: value}, {name: wanted[name]})
            (read,) = compare(found, {name: replace(wanted[name], exact=value, limit=limit)})
            judged[name] = reader if made.passed else maker if read.passed else maker + reader
            if read.passed:
                from_buffer = f"{name} from {buffer}"
                more.append(replace(read, name=from_buffer))
                judged[from_buffer] = reader
    return more, judged


def _users(call: Call, name: str) -> list[Launch]:
    """Return the launches that get the address of a buffer; the first writes one of `BETWEEN`."""
    argument = address_names(name)
    return [one for one in call.launches if any(own == argument for _, own, _ in one.addresses)]


def _combine(
    problem: AttentionProblem, found: Mapping[str, F64], buffer: str
) -> dict[str, tuple[F64, F64]]:
    """Return the results that follow from the values between two kernels, and sums of sizes."""
    if buffer == "dq_acc":
        totals = (np.swapaxes(of(found["dq_acc"]).sum(axis=0), 1, 2) for of in (np.asarray, np.abs))
        total, size = (one[0] if problem.is_group_mode else one for one in totals)
        return {"dq": (total, size)}
    parts = found["lse_acc"]
    most = np.where(np.isneginf(parts).all(axis=0), 0.0, parts.max(axis=0))
    lse = most + np.log(np.exp(parts - most).sum(axis=0))
    shares = np.exp(parts - np.where(np.isneginf(lse), 0.0, lse))[..., None]
    weighted = np.where(shares > 0, shares * found["o_acc"], 0.0)
    o, size = (np.swapaxes(one.sum(axis=0), -3, -2) for one in (weighted, np.abs(weighted)))
    return {"lse": (lse, np.abs(lse) + 1), "o": (o, size)}


def row_sums(problem: AttentionProblem, given: Tensors, left: Sequences[Forward]) -> Result | None:
    """Return D of a backward: the sums of O * dO that a kernel computes in float32."""
    if problem.direction != "bwd":
        return None
    factor = problem.dropout.undropped if problem.dropout else 1.0
    pairs = [(one.o, do) for one, do in zip(left, by_sequence(problem, given), strict=True)]
    exact, size = (
        joined(problem, [np.einsum("ihd,ihd->hi", of(o), of(do)) for o, do in pairs], "lse", 0)
        for of in (np.asarray, np.abs)
    )
    # As in qola_lab.reference.limits: the unit of a sum, and further roundings.
    limit = size * (problem.hdim_v * 2.0**-23 + 2.0**-21) + 2.0**-126
    return Result(exact * factor, limit, np.ones(exact.shape, np.bool_))
