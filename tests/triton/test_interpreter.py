"""Kernels on Triton's interpreter, in NumPy, agree with float64, forward and backward.

The interpreter expects PyTorch tensors; class Pointer provides their methods for NumPy arrays. The
interpreter multiplies bit patterns of bf16 as integers; this module first converts bf16 to float32,
which is exact.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qola.triton.kernel import Instance
from qola_base.formats import Rounding
from tests.triton.problem import SOURCES, TritonCase, Values, check

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_BACKENDS_IN_TREE"] = "1"

_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "i32": "int32"}
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


class Pointer:
    """An array with the methods of a PyTorch tensor that the interpreter calls."""

    # ruff: noqa: D102 - PyTorch documents these methods
    def __init__(self, array: NDArray[Any], kind: str) -> None:
        self.array, self.dtype = array, _TYPES[kind]

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def copy_(self, other: Pointer) -> None:
        assert other is self

    def new_empty(self, size: int, device: str) -> Pointer:
        del size, device
        return self

    def set_(self, *storage: object) -> None:
        assert storage[0] is self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return self.array.strides


@cache
def _patch_dot() -> None:
    interpreter = importlib.import_module("triton.runtime.interpreter")
    language = importlib.import_module("triton.language")
    builder = interpreter.InterpreterBuilder
    create_dot_of_triton = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        operands = [
            self.cast_impl(x, language.float32) if x.dtype.scalar == language.bfloat16 else x
            for x in (a, b)
        ]
        return create_dot_of_triton(self, *operands, *others)

    builder.create_dot = create_dot


def run(instance: Instance, values: Values, grid: tuple[int, int, int]) -> None:
    """Run a kernel."""
    function = instance.name.split("-", 1)[0]
    source = SOURCES[function]
    if source.stem not in sys.modules:
        sys.path.insert(0, str(source.parent))
        _patch_dot()
    kernel = getattr(importlib.import_module(source.stem), function)
    types = {argument.name: argument.type for argument in instance.arguments}
    arguments = {
        name: Pointer(value, types[name][1:]) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel[grid](**arguments, **{n: ast.literal_eval(v) for n, v in instance.constants.items()})


@pytest.mark.quick(1)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_agree_with_float64(name: str, dtype: str) -> None:
    """Prevents: a kernel's source has wrong masks, strides, heads, tile edges or dropout."""
    problem = PROBLEMS[name]
    # The interpreter truncates float32 to bf16.
    rounding: Rounding = "toward_zero" if dtype == "bf16" else "nearest_even"
    check(replace(problem, dtype=dtype, rounding=rounding), run)
