"""Compiled kernels, run on the CPU, agree with float64."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.triton.emulated import Emulated
from tests.triton.problem import TritonCase, check

_BLOCKS = (64, 32)

PROBLEMS = {
    "plain": TritonCase(((70, 50),), block=_BLOCKS, options={"num_stages": 1}),
    "all_of_it": TritonCase(
        ((33, 70), (90, 40), (0, 3)),
        heads=2,
        heads_k=1,
        causal=2,
        varlen=True,
        bias="heads",
        dropout=0.3,
        dtype="bf16",
        block=_BLOCKS,
        options={"num_stages": 1},
    ),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_compiled_kernels_agree_with_float64(name: str, arch: str) -> None:
    """Prevents: the compiler or its arguments turn a correct source into a wrong kernel."""
    device = Emulated()
    check(replace(PROBLEMS[name]), device.run, backward=True, arch=arch)
