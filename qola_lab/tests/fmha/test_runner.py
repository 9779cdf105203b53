"""Checks and rounding of a runner's arrays, before a kernel runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from qola_base.errors import Finding
from qola_base.formats import rounded
from qola_lab.fmha import runner
from qola_lab.fmha.runner import RunError, Runner
from qola_lab.problems import AttentionProblem, ProblemError, make_problem

FORWARD = make_problem("fwd", "fp16", seqlen_q=3, seqlen_k=5, nhead_q=2, hdim=32, return_lse=True)


def make_runner() -> Runner:
    built = Mock()
    built.plan.archs = ("gfx950",)
    return Runner(built, "gfx950")


def arrays(problem: AttentionProblem) -> list[Any]:
    return [np.full(problem.shapes()[name], 1 / 3) for name in ("q", "k", "v")]


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(FORWARD, direction="pagedkv_prefill"), "pagedkv_prefill, no pages"),
        (replace(FORWARD, direction="fwd_appendkv"), "fwd_appendkv, no new"),
        (replace(FORWARD, direction="fwd"), "direction fwd, no new"),
    ],
)
def test_problems_without_pages_or_new_rows(problem: AttentionProblem, message: str) -> None:
    """Prevents: an error of NumPy or of a kernel for a problem without pages or new rows."""
    run = make_runner().forward if "pages" in message else make_runner().append_kv
    with pytest.raises(ProblemError, match=message):
        run(problem, *arrays(problem))


def test_arrays_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a backward that rounds large arrays twice, and takes twice the time."""
    counting_rounded = Mock(wraps=rounded)
    monkeypatch.setattr(runner, "rounded", counting_rounded)
    backward = replace(FORWARD, direction="bwd")
    q, k, v = arrays(backward)
    stopped = RunError(Finding("library", "not record_calls", "a call"))
    monkeypatch.setattr(runner, "record_calls", Mock(side_effect=stopped))
    with pytest.raises(RunError, match="not record_calls"):
        make_runner().backward(backward, q, k, v, np.ones(backward.shapes()["o"]))
    assert counting_rounded.call_count == len("qkvd")
