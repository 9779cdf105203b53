"""Finds the kernel of a call whose output is wrong.

Several kernels compute a backward or a split-KV forward, and pass values in buffers. A kernel is
judged by what it makes of the values that it reads, so that a wrong result counts against the
kernel that made it wrong, and for the kernels that followed it correctly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qola_base.formats import F64
from qola_lab.problems import AttentionProblem
from qola_lab.reference.attention import Forward
from qola_lab.reference.limits import Arithmetic
from qola_lab.verify.case import Call, Launch
from qola_lab.verify.expected import Verdict, by_sequence, compare, joined
from qola_lab.verify.tensors import Result, Tensors
from qola_lab.verify.values import address_names

BETWEEN = ("d", "dq_acc", "o_acc", "lse_acc")
"""Buffers that a kernel writes and another one of the call reads."""

#: Errors of float32 in a sum of values, as a share of the sum of their sizes.
_COMBINED = 2.0**-20
#: Results that do not depend on D, the row sums of O * dO.
_WITHOUT_D = frozenset({"dv"})


def judge(
    call: Call,
    found: Mapping[str, F64],
    wanted: Mapping[str, Result],
    verdicts: Sequence[Verdict],
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


def row_sums(problem: AttentionProblem, given: Tensors, left: Sequence[Forward]) -> Result | None:
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
