"""Attention's kernels compile for every arch, data type and head dimension that docs name."""

from __future__ import annotations

import pytest

from qola.triton.compile import compile_instance
from tests.triton.problem import SOURCES, TritonCase

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
PROBLEMS = {
    "plain_16": TritonCase(hdim=16, block=(64, 32)),
    "causal_96_bf16": TritonCase(hdim=96, dtype="bf16", causal=1, block=(64, 32)),
    "all_of_it_128": TritonCase(
        varlen=True, bias="heads", dropout=0.1, causal=2, hdim=128, block=(64, 32)
    ),
    "causal_256": TritonCase(hdim=256, causal=2, block=(32, 16)),
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("function", SOURCES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_it_compiles(name: str, function: str, arch: str) -> None:
    """Prevents: a kernel that a new Triton, or an arch, refuses; more LDS than there is."""
    instance = PROBLEMS[name].instance(function, arch)
    made = compile_instance(instance, SOURCES[function], function)
    assert made.launch["arch"] == arch
    assert made.launch["shared"] <= 64 * 1024
    assert made.launch["global_scratch_size"] == 0
