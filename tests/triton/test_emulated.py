"""Compiled kernels, run in the emulator, agree with float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gfxemu.launch import Device, Module, Options
from qola.triton.compile import compile_instance
from qola.triton.kernel import Instance
from qola_base.code_object.reader import CodeObject
from tests.triton.problem import SOURCES, TritonCase, Values, check, pack_arguments

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


class Emulated:
    """A device that owns the arguments of its kernels, and runs kernels with all checks."""

    def __init__(self) -> None:
        self.device = Device(Options(strict=True))
        self._owned: set[int] = set()

    def run(self, instance: Instance, values: Values, grid: tuple[int, int, int]) -> None:
        """Compile and run a kernel."""
        function = instance.name.split("-", 1)[0]
        compiled = compile_instance(instance, SOURCES[function], function)
        self.device.launch(
            Module(self.device, CodeObject.read(compiled.code, instance.name)),
            compiled.launch["symbol"],
            grid,
            (compiled.launch["num_warps"] * compiled.launch["warp_size"], 1, 1),
            pack_arguments(instance.arguments, {n: self._address(v) for n, v in values.items()}),
            compiled.launch["shared"],
        )

    def _address(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        address = int(value.ctypes.data)
        assert address % 16 == 0
        if address not in self._owned:
            self._owned.add(self.device.map.own(value))
        return address


@pytest.mark.quick(1)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_compiled_kernels_agree_with_float64(name: str, arch: str) -> None:
    """Prevents: the compiler or its arguments turn a correct source into a wrong kernel."""
    check(PROBLEMS[name], Emulated().run, arch)
