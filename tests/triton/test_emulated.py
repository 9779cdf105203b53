"""Kernels as they are compiled, run on the CPU, agree with float64."""

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
    """Prevents: a compiler, or arguments, that make of a right source a wrong kernel."""
    device = Emulated()
    check(replace(PROBLEMS[name]), device.run, backward=True, arch=arch)


def test_both_engines_agree() -> None:
    """Prevents: kernels in waves of 32 lanes whose results depend on the engine that runs them."""
    found = []
    for reference in (False, True):
        device = Emulated(reference)
        check(replace(PROBLEMS["plain"]), device.run, backward=False, arch="gfx1100")
        found.append(device.written())
    assert found[0] == found[1]
