"""Conversion of attention problems to calls of the consumer program."""

from __future__ import annotations

from qola_lab.problems import AttentionProblem
from qola_lab.tests.verify.problem import ConsumerCall


def consumer_problem(problem: AttentionProblem) -> ConsumerCall | None:
    """Return the call for a problem, or None if the program cannot express the problem."""
    if problem.is_group_mode and len(set(problem.seqlen_q)) + len(set(problem.seqlen_k)) > 2:
        return None
    mask = "no" if problem.mask_type == "no" else "window"
    return ConsumerCall(
        problem.direction,
        problem.dtype,
        problem.hdim_q,
        problem.hdim_v,
        problem.mode,
        mask,
        problem.bias_type,
        problem.return_lse,
        problem.has_dbias,
        problem.dropout_p,
        deterministic=problem.deterministic,
        batch=problem.batch,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        seqlen_q=problem.seqlen_q[0],
        seqlen_k=problem.seqlen_k[0],
        soft_cap=problem.logits_soft_cap,
        min_seqlen_q=problem.min_seqlen_q,
    )
