"""The fake HIP runtime in this process, with the emulator behind it: launches run kernels."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gfxemu.arrays import U8, Array
from gfxemu.faults import EmulationError, Fault
from gfxemu.launch import Device, Module, Options, Result
from gfxemu.reports import FaultyLaunch, describe
from qola_base.code_object.reader import CodeObject
from qola_base.errors import Finding, QolaError
from qola_base.json_types import Scalar

#: hipErrorLaunchFailure: status of a launch whose kernel could not be run.
_LAUNCH_FAILURE = 719


class _Launch(ctypes.Structure):
    """fake_hip_launch of gfxemu/fake_hip/launch.h."""

    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("code_bytes", ctypes.c_size_t),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_lds_bytes", ctypes.c_uint32),
        ("kernarg", ctypes.c_void_p),
        ("kernarg_bytes", ctypes.c_size_t),
    ]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))
#: fake_hip_variables of gfxemu/fake_hip/launch.h.
_VARIABLES = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)),
)


@dataclass(frozen=True)
class HipLaunch:
    """A launch that host code requested.

    Attributes:
        kernel: its symbol.
        code: sha256 of its code object.
        arguments: the kernarg segment.
        result: None if the kernel did not run to its end.
    """

    kernel: str
    code: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    arguments: bytes
    result: Result | None = None


class Hip:
    """A device of one arch in this process.

    A process has one device: use another process for another arch.

    Attributes:
        device: what runs the kernels.
        launches: in the order of requests.
        codes: the code objects of these launches by sha256.
    """

    _made = False
    #: The runtime may call them until the process ends, so they outlive the device.
    _callbacks: ClassVar[tuple[Any, ...]] = ()

    def __init__(
        self,
        runtime: Path,
        arch: str,
        options: Options | None = None,
        *,
        units: int = 0,
        runs: bool = True,
        report: Callable[[BaseException], None] | None = None,
        hint: Callable[[Fault], None] | None = None,
    ) -> None:
        """Load the fake runtime, before any library that needs HIP.

        Args:
            runtime: gfxemu/fake_hip's library, whatever its name.
            arch: one of `ARCHS`.
            units: compute units of the device, 0 for those of the arch's largest GPU.
            runs: whether kernels are executed; otherwise launches are only recorded.
            report: called with the error of each launch that failed.
            hint: called with each fault that did not end its launch.
        """
        if Hip._made:
            raise RuntimeError("a process has one device")
        Hip._made = True
        os.environ["FAKE_HIP_ARCH"] = arch
        if units:
            os.environ["FAKE_HIP_CU_COUNT"] = str(units)
        # The runtime reads the environment of the C library.
        self._runtime = ctypes.CDLL(str(runtime.resolve()), mode=ctypes.RTLD_GLOBAL)
        self._runtime.fake_hip_written.restype = ctypes.c_void_p
        self.device = Device(options or Options())
        if self.device.options.checked:
            self._runtime.fake_hip_follow_writes()
        self.launches: list[HipLaunch] = []
        self.codes: dict[str, bytes] = {}
        self._runs = runs
        self._report, self._hint = report, hint
        self._modules: dict[str, Module] = {}
        self._error: BaseException | None = None
        Hip._callbacks = _CALLBACK(self._launched), _VARIABLES(self._variable)
        self._runtime.fake_hip_emulate(Hip._callbacks[0])
        self._runtime.fake_hip_find_variables(Hip._callbacks[1])

    def load(self, library: Path) -> ctypes.CDLL:
        """Load a library; those that it needs must be loaded before, or be where it looks."""
        return ctypes.CDLL(str(library.resolve()), mode=ctypes.RTLD_GLOBAL)

    def caller(self, library: Path) -> Callable[[str, Mapping[str, Scalar | Allocation]], float]:
        """Load a library as `by_name` does; the function also raises errors of kernels."""
        function = by_name(self.load(library))

        def call(entry: str, values: Mapping[str, Scalar | Allocation]) -> float:
            try:
                return function(entry, values)
            finally:
                # The error of a kernel is the reason for the status.
                self.raise_error()

        return call

    def raise_error(self) -> None:
        """Raise the first error of a launch since the last call."""
        error, self._error = self._error, None
        self._runtime.fake_hip_forget_faults()
        if error is not None:
            raise error

    def allocate(self, array: Array) -> Allocation:
        """Allocate device memory with the content of an array."""
        return Allocation(self._runtime, array)

    def _launched(self, pointer: Any) -> int:
        try:
            self._run(pointer.contents)
        except BaseException as error:
            # An exception cannot pass through the library: raise_error raises it later.
            self._error = self._error or error
            if self._report:
                self._report(error)
            return _LAUNCH_FAILURE
        return 0

    def _run(self, seen: _Launch) -> None:
        code = ctypes.string_at(seen.code, seen.code_bytes)
        digest = hashlib.sha256(code).hexdigest()
        self.codes[digest] = code
        grid, block = (tuple(getattr(seen, name)) for name in ("grid", "block"))
        arguments = ctypes.string_at(seen.kernarg, seen.kernarg_bytes)
        symbol, lds = seen.kernel.decode(), int(seen.dynamic_lds_bytes)
        self.launches.append(HipLaunch(symbol, digest, grid, block, lds, arguments))
        if not self._runs:
            return
        known = self.allocations()
        for address, size in known:
            self.device.map.add(address, size)
            if (written := self._written(address, size)) is not None:
                self.device.map.written[address] = written
        try:
            module = self._module(digest, code)
            result = self.device.launch(module, symbol, grid, block, arguments, lds)
        finally:
            self.device.map.written.clear()
            for address, _ in known:
                self.device.map.remove(address)
        self.launches[-1] = replace(self.launches[-1], result=result)
        if self._hint:
            for fault in result.faults:
                self._hint(fault)

    def _module(self, digest: str, code: bytes) -> Module:
        if digest not in self._modules:
            self._modules[digest] = Module(self.device, CodeObject.read(code))
        return self._modules[digest]

    def _variable(self, code: int, size: int, name: bytes, found: Any) -> int:
        """Return the address of a variable and write its size; 0 for an unknown name."""
        octets = ctypes.string_at(code, size)
        module = self._module(hashlib.sha256(octets).hexdigest(), octets)
        address, found[0] = module.code_object.symbols.get(name.decode(), (0, 0))
        return module.base + address if address else 0

    def allocations(self) -> list[tuple[int, int]]:
        """Return the address and the size of each allocation of device memory."""
        return self._ranges("fake_hip_allocations")

    def describe(self, error: BaseException | Fault) -> str:
        """Describe the error or a fault of the last launch for the authors of its kernel."""
        fault = error.fault if isinstance(error, EmulationError) else error
        if not isinstance(fault, Fault):
            return str(error)
        last = self.launches[-1]
        ranges = self.allocations(), self._ranges("fake_hip_freed")
        return describe(fault, FaultyLaunch(self.codes[last.code], last.grid, last.block, *ranges))

    def _written(self, address: int, size: int) -> Array | None:
        """Return which bytes of an allocation were written, if the runtime follows it."""
        if not self.device.options.checked:
            return None
        found = self._runtime.fake_hip_written(ctypes.c_void_p(address))
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(found)) if found else None

    def _ranges(self, function: str) -> list[tuple[int, int]]:
        query = getattr(self._runtime, function)
        query.restype = ctypes.c_size_t
        count = query(None, None, ctypes.c_size_t(0))
        addresses = (ctypes.c_size_t * count)()
        sizes = (ctypes.c_size_t * count)()
        query(addresses, sizes, ctypes.c_size_t(count))
        return list(zip(addresses, sizes, strict=True))


def by_name(library: ctypes.CDLL) -> Callable[[str, Mapping[str, Scalar | Allocation]], float]:
    """Return a function that calls the entry points of a library of the rule library_caller.

    The function takes an entry point's name and values by name, addresses as int; it returns the
    entry point's status.
    """
    function = library.qola_call
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_float)]

    def call(entry: str, values: Mapping[str, Scalar | Allocation]) -> float:
        status = ctypes.c_float()
        text = " ".join(f"{name}={_text(value)}" for name, value in values.items())
        wrong = function(entry.encode(), text.encode(), ctypes.byref(status)).decode()
        if wrong:
            raise QolaError(Finding(entry, wrong, "values that the entry point takes"))
        return status.value

    return call


class Allocation:
    """Memory of the device, which is memory of this process.

    Attributes:
        address: where it begins.
        array: its content, a view that can be read and changed.
    """

    def __init__(self, runtime: ctypes.CDLL, array: Array) -> None:
        self._runtime = runtime
        pointer = ctypes.c_void_p()
        status = runtime.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(1, array.nbytes)))
        if status or pointer.value is None:
            raise MemoryError(f"hipMalloc of {array.nbytes} bytes: error {status}")
        self.address = pointer.value
        raw = (ctypes.c_uint8 * array.nbytes).from_address(self.address)
        self.array: Array = (
            np.frombuffer(memoryview(raw), U8).view(array.dtype).reshape(array.shape)
        )
        self.array[...] = array

    def free(self) -> None:
        """Free the memory; the array must not be used any more."""
        self._runtime.hipFree(ctypes.c_void_p(self.address))


def _text(value: Any) -> str:
    if isinstance(value, Allocation):
        return hex(value.address)
    return str(int(value)) if isinstance(value, bool) else str(value)
