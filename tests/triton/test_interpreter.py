"""Kernels on Triton's interpreter agree with float64, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qola_base.formats import Rounding
from tests.triton.interpreter import run
from tests.triton.problem import TritonCase, check

_VARLEN = ((33, 20), (1, 40), (0, 5), (17, 0), (40, 64))

PROBLEMS = {
    "all_of_it": TritonCase(
        _VARLEN, varlen=True, dropout=0.3, bias="heads", causal=2, heads=4, hdim=32
    ),
    "plain": TritonCase(),
    "one_row": TritonCase(((1, 1),)),
    "hdim_16": TritonCase(hdim=16, causal=1),
    "hdim_40": TritonCase(hdim=40, causal=2),
    "hdim_96": TritonCase(hdim=96),
    "hdim_128": TritonCase(hdim=128, causal=2),
    "hdim_192": TritonCase(((20, 20),), hdim=192, causal=1),
    "hdim_256": TritonCase(((20, 40),), hdim=256),
    "top_left": TritonCase(((70, 50),), causal=1),
    "bottom_right": TritonCase(((40, 90),), causal=2),
    "rows_without_keys": TritonCase(((90, 40),), causal=2),
    "whole_tiles": TritonCase(((64, 64),), causal=1),
    "batch": TritonCase(((20, 30),) * 3, causal=2),
    "shared_heads": TritonCase(heads=4, heads_k=2, causal=1),
    "one_head_of_k": TritonCase(heads=3, heads_k=1),
    "varlen": TritonCase(_VARLEN, varlen=True),
    "varlen_top_left": TritonCase(_VARLEN, varlen=True, causal=1, heads=4),
    "varlen_bottom_right": TritonCase(_VARLEN, varlen=True, causal=2, heads=4),
    "bias": TritonCase(bias="heads"),
    "bias_of_all_heads": TritonCase(((20, 30),) * 2, bias="all", causal=1),
    "bias_varlen": TritonCase(_VARLEN, varlen=True, bias="heads", causal=2),
    "dropout": TritonCase(dropout=0.2),
    "dropout_varlen": TritonCase(_VARLEN, varlen=True, dropout=0.5, causal=1, heads=4),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_agree_with_float64(name: str, dtype: str) -> None:
    """Prevents: a kernel's source has wrong masks, strides, heads, tile edges or dropout."""
    problem = PROBLEMS[name]
    # The interpreter truncates float32 to bf16.
    rounding: Rounding = "toward_zero" if dtype == "bf16" else "nearest_even"
    check(replace(problem, dtype=dtype, rounding=rounding), run)
