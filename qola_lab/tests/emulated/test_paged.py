"""Split-KV, append and paged prefill: launches, and results compared with float64."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qola_lab.fmha import reference
from qola_lab.fmha.agreement import compared, sweep
from qola_lab.fmha.build import built_by
from qola_lab.fmha.runner import Runner
from qola_lab.problems import AttentionProblem, ProblemError, make_problem
from qola_lab.reference.masks import BOTTOM_RIGHT
from qola_lab.tests.emulated.runs import arrays, fault_text, run_append
from qola_lab.verify.host import Built

PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()
ARCH = "gfx950"
HEADS: dict[str, Any] = {"nhead_q": 4, "nhead_k": 2, "hdim": 128}
APPEND = make_problem(
    "fwd_appendkv", "fp16", seqlen_q=5, seqlen_k=[133, 40], seqlen_knew=20, **HEADS
)
LENGTHS: dict[str, Any] = {"seqlen_q": [40, 7], "seqlen_k": [140, 30]}
PREFILL = make_problem(
    "pagedkv_prefill", "fp16", **LENGTHS, **HEADS, page_block_size=128, **asdict(BOTTOM_RIGHT)
)


@pytest.fixture(scope="module")
def library() -> Built:
    (built,) = built_by(PROGRAM).values()
    return built


@pytest.mark.parametrize("page", [0, 128])
@pytest.mark.parametrize(
    "problem",
    [
        APPEND,
        replace(APPEND, rope_type="half", rotary_dim=128, **asdict(BOTTOM_RIGHT)),
        replace(APPEND, rope_type="inter", rotary_dim=64).with_layout(order="bhsd"),
    ],
    ids=str,
)
def test_rows_are_appended_and_rotated(
    library: Built, problem: AttentionProblem, page: int
) -> None:
    """Prevents: wrong rows in a K/V cache after an append, or rows rotated by a wrong angle."""
    problem = problem.with_layout(page_block_size=page)
    run, expected = run_append(library, ARCH, problem)
    assert run.passed, fault_text(run)
    (name,) = run.launched
    assert ("_pagedkv_" in name, f"_{problem.rope_type}_" in name) == (
        page > 0,
        problem.rope_type != "no",
    )
    assert set(run.results) == {"k", "v"} | ({"q"} if problem.rope_type != "no" else set())
    for name_, result in run.results.items():
        assert np.allclose(result, getattr(expected, name_), rtol=2e-3, atol=2e-3)


def test_attention_over_pages(library: Built) -> None:
    """Prevents: attention that reads K/V pages in another order than the block table's."""
    given = arrays(PREFILL, "q", "k", "v")
    run = Runner(library, ARCH).forward(PREFILL, *given)
    assert run.passed, fault_text(run)
    (name,) = run.launched
    assert name.startswith("fmha_fwd_pagedkv_d128_fp16_group_")
    expected = reference.forward(PREFILL, *given)
    assert np.allclose(run.results["o"], expected.o, rtol=2e-3, atol=2e-3)
    with pytest.raises(ProblemError, match="no pages"):
        Runner(library, ARCH).forward(PREFILL.with_layout(page_block_size=0), *given)


def test_libraries_launch_the_kernels_of_the_parsed_dispatch(library: Built) -> None:
    """Prevents: a registry that selects other kernels than the compiled dispatch launches."""
    results = compared(library, ARCH, [*sweep(library.kernels, 300), PREFILL, APPEND])
    assert [result.line() for result in results if not result.agrees] == []
    assert {result.unasked.partition(":")[0] for result in results} <= {
        "",
        "page_size",
        "rotary_dim",
    }
    assert sum(bool(result.launched) for result in results) > 60
    assert sum(result.as_found is True and bool(result.launched) for result in results) > 40


def test_problems_that_only_the_c_api_refuses_agree(library: Built) -> None:
    """Prevents: a problem that only the C API refuses, reported as a wrong launch."""
    (comparison,) = compared(library, ARCH, [APPEND.with_layout(page_block_size=64)])
    assert comparison.unasked == "page_size: 64, expected a multiple of 128"
    assert (comparison.as_selected, comparison.as_found, comparison.agrees) == (True, None, True)
