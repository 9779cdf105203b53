"""What a runner refuses, and what it makes of arrays, before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from qola.attention import AttentionProblem, ProblemError, make_problem
from qola.fmha import runner
from qola.fmha.gpu import DeviceRun
from qola.fmha.runner import Runner
from qola.reference.formats import rounded

FORWARD = make_problem("fwd", "fp16", seqlen_q=3, seqlen_k=5, nhead_q=2, hdim=32, return_lse=True)


def a_runner(done: DeviceRun | None = None) -> Runner:
    built = Mock()
    built.plan.archs = ("gfx950",)
    made = Runner(built, "gfx950")
    made._device = Mock()
    made._device.run.return_value = done
    return made


def arrays(problem: AttentionProblem) -> list[Any]:
    return [np.full(problem.shapes()[name], 1 / 3) for name in ("q", "k", "v")]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (replace(FORWARD, direction="pagedkv_prefill"), "pagedkv_prefill, no pages"),
        (replace(FORWARD, direction="fwd_appendkv"), "fwd_appendkv, no new"),
        (replace(FORWARD, direction="fwd"), "direction fwd, no new"),
    ],
)
def test_problems_without_pages_or_new_rows(given: AttentionProblem, words: str) -> None:
    """Prevents: an error of NumPy or of a kernel, or an array of no rows, for such a problem."""
    run = a_runner().forward if "pages" in words else a_runner().append_kv
    with pytest.raises(ProblemError, match=words):
        run(given, *arrays(given))


def test_arrays_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: twice the time for large arrays of a backward."""
    counted = Mock(wraps=rounded)
    monkeypatch.setattr(runner, "rounded", counted)
    backward = replace(FORWARD, direction="bwd")
    q, k, v = arrays(backward)
    of = a_runner(DeviceRun({"dq": q, "dk": k, "dv": v}, (), (), 0))
    of.backward(backward, q, k, v, np.ones(backward.shapes()["o"]))
    assert counted.call_count == len("qkvd")
