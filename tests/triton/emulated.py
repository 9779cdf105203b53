"""Runs compiled kernels in the emulator, gfxemu."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gfxemu.launch import Device, Module, Options
from qola.triton.compile import Compiled, compile_instance
from qola.triton.kernel import Instance
from qola_base.code_object.reader import CodeObject
from tests.triton.problem import SOURCES, Values, pack_arguments


@cache
def compile_once(name: str) -> Compiled:
    """Compile a kernel once per process."""
    instance = _INSTANCES[name]
    function = name.split("-", 1)[0]
    return compile_instance(instance, SOURCES[function], function)


_INSTANCES: dict[str, Instance] = {}


class Emulated:
    """A device that owns the arguments of its kernels, and runs kernels with all checks."""

    def __init__(self) -> None:
        self.device = Device(Options(strict=True))
        self._modules: dict[str, Module] = {}
        self._owned: set[int] = set()

    def run(self, instance: Instance, values: Values, grid: tuple[int, int, int]) -> None:
        """Run a kernel."""
        _INSTANCES[instance.name] = instance
        compiled = compile_once(instance.name)
        if instance.name not in self._modules:
            code_object = CodeObject.read(compiled.code, instance.name)
            self._modules[instance.name] = Module(self.device, code_object)
        self.device.launch(
            self._modules[instance.name],
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
