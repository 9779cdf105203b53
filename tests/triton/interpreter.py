"""Runs kernels on Triton's own interpreter, in NumPy.

The interpreter asks PyTorch's tensors for their memory; here NumPy's arrays answer. It multiplies
bf16 by their bits, as integers: here they become float32 before, which loses nothing.
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
    """An array, as much of a tensor of PyTorch as the interpreter asks for."""

    # ruff: noqa: D102 - the names and their meaning are PyTorch's
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
def _mend() -> None:
    interpreter = importlib.import_module("triton.runtime.interpreter")
    language = importlib.import_module("triton.language")
    builder = interpreter.InterpreterBuilder
    plain = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        wide = [
            self.cast_impl(one, language.float32) if one.dtype.scalar == language.bfloat16 else one
            for one in (a, b)
        ]
        return plain(self, *wide, *others)

    builder.create_dot = create_dot


def run(instance: Instance, values: Values, grid: tuple[int, int, int]) -> None:
    """Run a kernel."""
    function = instance.name.split("-", 1)[0]
    source = SOURCES[function]
    if source.stem not in sys.modules:
        sys.path.insert(0, str(source.parent))
        _mend()
    kernel = getattr(importlib.import_module(source.stem), function)
    types = {one.name: one.type for one in instance.arguments}
    given = {
        name: Pointer(value, types[name][1:]) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel[grid](**given, **{n: _number(v) for n, v in instance.constants.items()})


def _number(text: str) -> int:
    return {"True": True, "False": False}[text] if text in ("True", "False") else int(text)
