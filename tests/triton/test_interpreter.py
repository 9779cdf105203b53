"""Kernels on Triton's own interpreter agree with float64, forward and backward."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qola.reference.formats import Rounding
from tests.triton.interpreter import run
from tests.triton.problem import KERNELS, SOURCES, TritonCase, check

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
    """Prevents: wrong masks, strides, heads, edges of tiles or dropout in a kernel's source."""
    problem = PROBLEMS[name]
    # The interpreter cuts float32 off to get bf16.
    rounding: Rounding = "toward_zero" if dtype == "bf16" else "nearest_even"
    check(replace(problem, dtype=dtype, rounding=rounding), run)


#: By problem that sees it: a file, what stands there, and a slip in its place.
MUTANTS = [
    ("top_left", "parts", "<= rows_at[:, None] + shift", "< rows_at[:, None] + shift"),
    ("bottom_right", "parts", "shift = columns - rows", "shift = 0"),
    ("whole_tiles", "parts", "first + shift + 1, 0)", "first + shift + BLOCK_N, 0)"),
    ("hdim_40", "parts", "mask = mask & (d[None, :] < HDIM)", "mask = mask"),
    ("dropout", "parts", "zero + number, zero + offset", "zero + offset, zero + number"),
    ("plain", "forward", "total = total * less + ", "total = total + "),
    ("plain", "forward", "tl.log2(", "tl.log("),
    ("shared_heads", "forward", "head // group, first_k, k_batch", "head, first_k, k_batch"),
    ("varlen", "forward", "first_k, v_batch", "first_q, v_batch"),
    ("dropout", "forward", "factor = factor * keep_scale", "factor = factor"),
    ("bias", "forward", ".to(tl.float32) * LOG2_E", ".to(tl.float32)"),
    ("plain", "backward", "dp - delta[:, None]", "dp"),
    ("shared_heads", "backward", "range(0, group)", "range(0, 1)"),
    ("dropout", "backward", "dp * keep_scale", "dp"),
    ("top_left", "backward", "first_column - shift, 0)", "first_column + BLOCK_M, 0)"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "file", "right", "wrong"), MUTANTS)
def test_a_slip_is_seen(
    name: str, file: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: problems, or limits, under which a wrong kernel passes."""
    place = shutil.copytree(KERNELS, tmp_path / "kernels", copy_function=shutil.copy)
    source = place / f"attention_{file}.py"
    text = source.read_text("utf-8")
    assert right in text
    source.write_text(text.replace(right, wrong))
    for function, path in SOURCES.items():
        monkeypatch.setitem(SOURCES, function, place / path.name)
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])
    for path in place.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    with pytest.raises(AssertionError, match=r"is .*, should be|written between rows"):
        check(PROBLEMS[name], run)
    for path in place.glob("*.py"):
        sys.modules.pop(path.stem, None)
