"""Memory of verification, apart from the kernel."""

from __future__ import annotations

import tracemalloc

import pytest

from qola_lab.problems import AttentionProblem, make_problem
from qola_lab.verify.expected import compare, expected
from qola_lab.verify.replay import contents
from qola_lab.verify.tensors import arithmetic, tensors

ARCH = "gfx950"


def peak_of_memory(problem: AttentionProblem) -> float:
    """Compare exact results with their limits; return the peak of memory in MB."""
    tracemalloc.start()
    try:
        given = tensors(problem, ARCH)
        wanted = expected(problem, given, arithmetic(problem, ARCH, 16))
        assert contents(problem, given, ARCH)
        verdicts = compare({name: one.exact for name, one in wanted.items()}, wanted)
        assert all(verdict.passed and verdict.compared for verdict in verdicts)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_memory_is_that_of_the_tensors(direction: str) -> None:
    """Prevents: intermediates of 16 GB for a problem whose tensors take 0.5 GB."""
    sizes = {"hdim": 64, "seqlen_q": 2048, "seqlen_k": 2048, "nhead_q": 2, "nhead_k": 1}
    # P takes 67 MB, and a tensor with a head for each of Q 2 MB.
    assert peak_of_memory(make_problem(direction, "bf16", return_lse=True, **sizes)) < 80
