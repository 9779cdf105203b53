"""Problems in the words of the consumer program, whose predictor knows nothing of a dispatch."""

from __future__ import annotations

from qola.verify.problem import Problem
from tests.verify.problem import Problem as ConsumerProblem


def consumer_problem(problem: Problem) -> ConsumerProblem | None:
    """The problem as the consumer program states it, None where it cannot."""
    if problem.group and len(set(problem.rows)) + len(set(problem.columns)) > 2:
        return None
    mask = "no" if problem.mask.kind == "no" else "window"
    return ConsumerProblem(
        problem.direction,
        problem.dtype,
        problem.hdim_q,
        problem.hdim_v,
        "group" if problem.group else "batch",
        mask,
        problem.bias,
        problem.lse,
        problem.dbias,
        problem.dropout.probability if problem.dropout else 0.0,
        deterministic=problem.deterministic,
        batch=problem.batch,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        seqlen_q=problem.rows[0],
        seqlen_k=problem.columns[0],
        soft_cap=problem.soft_cap,
        min_seqlen_q=problem.min_rows,
    )
