"""Attention kernels compile for every documented arch, data type and head dimension."""

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
def test_kernel_compiles(name: str, function: str, arch: str) -> None:
    """Prevents: Triton rejects a kernel for an arch, or a kernel exceeds the LDS."""
    instance = PROBLEMS[name].instance(function, arch)
    compiled = compile_instance(instance, SOURCES[function], function)
    assert compiled.launch["arch"] == arch
    assert compiled.launch["shared"] <= 64 * 1024
    assert compiled.launch["global_scratch_size"] == 0
