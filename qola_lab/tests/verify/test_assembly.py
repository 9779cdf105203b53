"""Problems for assembly kernels, derived from their names and checked with the host code."""

from __future__ import annotations

from functools import partial

import pytest

from qola.codegen.types import FieldValue
from qola_lab.problems import AttentionProblem
from qola_lab.verify.propose import (
    ASSEMBLY_CALLS,
    Hints,
    hints_of_code_object,
    hints_of_fields,
    propose_assembly,
)
from qola_lab.verify.run import VerifyRequest, search

BWD = "hsa/gfx950/fmha_v3_bwd/"


@pytest.mark.parametrize(
    ("key", "hints"),
    [
        (
            "hsa/gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16_causal_rtz_group.co",
            Hints(
                ("bf16",), ((128, 128),), (True,), ("causal",), (True,), conversion=2, cu_count=80
            ),
        ),
        (
            "hsa/gfx950/fmha_v3_fwd/fwd_hd192_hd128_bf16.co",
            Hints(("bf16",), ((192, 128),), (False,), ("no",), (True,)),
        ),
        (
            BWD + "bwd_hd64_fp16_a16.co",
            Hints(("fp16",), ((64, 64),), (False,), ("no",), (False,)),
        ),
        (
            BWD + "bwd_hd128_bf16_swa_a32_rtne_psskddv.co",
            Hints(("bf16",), ((128, 128),), (False,), ("window",), (True,), conversion=0),
        ),
        # dq_shuffle follows kernels of every data type and mask that store dQ in 16 bits.
        (
            BWD + "bwd_hd128_dq_shuffle.co",
            Hints(hdims=((128, 128),), groups=(False,), sums=(False,)),
        ),
    ],
)
def test_names_are_hints(key: str, hints: Hints) -> None:
    """Prevents: an assembly kernel without problems, because its name is misread."""
    assert hints_of_code_object(key) == hints


def test_a_helper_kernel_has_the_hints_of_its_main_kernels() -> None:
    """Prevents: a helper kernel that never launches, since its problems suit other main kernels."""
    keys = [BWD + name for name in ("bwd_hd64_fp16_a16.co", "bwd_hd64_bf16_a32_rtz_pssk_group.co")]
    fields: dict[str, FieldValue] = {"dtype": "fp16", "mode": "batch", "hdim_v": 64}
    assert list(hints_of_fields(fields, keys)) == [hints_of_code_object(keys[0])]
    assert list(hints_of_fields({**fields, "mode": "group"}, keys)) == []


def draw(name: str, serves: tuple[bool, bool], samples: int = 3) -> tuple[AttentionProblem, ...]:
    def launched(problem: AttentionProblem) -> tuple[str, ...]:
        equal_lengths = problem.seqlen_q == problem.seqlen_k
        return ("asm",) if serves == (problem.is_group_mode, equal_lengths) else ("other",)

    hints = hints_of_code_object(BWD + "bwd_hd64_bf16_a32_rtz_pssk.co")
    proposals = [partial(propose_assembly, "bwd", hints)]
    request = VerifyRequest("gfx950", samples=samples)
    found = search(name, proposals, launched, request, ASSEMBLY_CALLS)
    assert bool(found.missing) == (len(found.samples) < samples), found
    return tuple(sample.problem for sample in found.samples)


def test_problems_launch_the_requested_kernel() -> None:
    """Prevents: a problem that launches another kernel, or other problems for an equal seed."""
    found = draw("asm", (False, True))
    assert len(set(found)) == len(found) >= 3
    assert found == draw("asm", (False, True))
    for problem in found:
        assert problem.seqlen_q == problem.seqlen_k
        assert (problem.use_asm, problem.how_v3_bf16_cvt, problem.is_v3_atomic_fp32) == (
            True,
            2,
            True,
        )
        assert "use_asm=yes how_v3_bf16_cvt=2" in str(problem)
    assert draw("asm", (True, True)) == ()
    assert draw("another", (False, True)) == ()
