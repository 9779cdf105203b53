"""Runs kernels on Triton's interpreter, in NumPy.

The interpreter expects PyTorch tensors; class Pointer provides their methods for NumPy arrays. The
interpreter multiplies bit patterns of bf16 as integers; this module first converts bf16 to float32,
which is exact.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.triton.kernel import Instance
from tests.triton.problem import SOURCES, Values

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_BACKENDS_IN_TREE"] = "1"

_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "i32": "int32"}


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
        kernel[grid](**arguments, **{n: _number(v) for n, v in instance.constants.items()})


def _number(text: str) -> int:
    return {"True": True, "False": False}[text] if text in ("True", "False") else int(text)
