"""Runs a library's entry points on a GPU, through the machine's HIP runtime.

Tests run kernels on the emulator behind a HIP runtime of their own; none has run on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gfxemu.fake_hip import RUNTIME
from gfxemu.hip import by_name
from qola.aiter.attention import ENTRIES
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.formats import F64
from qola_lab.fmha.registry import Registry
from qola_lab.problems import AttentionProblem
from qola_lab.verify.host import Built
from qola_lab.verify.memory import buffers, tables
from qola_lab.verify.values import address_names, entry_values
from runtime.wheel._hip import load_runtime

#: hipMemcpyKind.
_TO_DEVICE, _TO_HOST = 1, 2


class RunError(QolaError, title="the kernels did not run", exit_code=ExitCode.WRONG):
    """A device that does not exist, or a problem that the library did not run."""


@dataclass(frozen=True)
class DeviceRun:
    """One run of kernels on a device.

    Attributes:
        launched: names of the kernels; on a GPU those of the parsed dispatch, and () if assembly
            kernels may have served the problem.
        findings: faults and forbidden writes.
        instructions: of waves; None on a GPU.
        seconds: None on the emulator.
    """

    results: Mapping[str, F64]
    launched: tuple[str, ...]
    findings: tuple[str, ...]
    instructions: int | None = None
    seconds: float | None = None


class Gpu:
    """The current device of the machine's HIP runtime, with a library loaded."""

    def __init__(self, built: Built, arch: str) -> None:
        """Load the runtime and the library; raise RunError without a runtime or device."""
        self._arch = arch
        self._parameters = built.parameters
        try:
            self._hip = load_runtime(RUNTIME, mode=ctypes.RTLD_GLOBAL)
            count = ctypes.c_int()
            status = self._hip.hipGetDeviceCount(ctypes.byref(count))
            found = "" if count.value and not status else f"no device of HIP's: error {status}"
        except RuntimeError as error:
            found = str(error)
        if found:
            fix = 'Runner(..., device="emulated")'
            raise RunError(Finding("device hip", found, "ROCm 7, and a GPU that it supports", fix))
        ctypes.CDLL(str(built.library.resolve()), mode=ctypes.RTLD_GLOBAL)
        assert built.caller is not None
        self._call = by_name(ctypes.CDLL(str(built.caller.resolve()), mode=ctypes.RTLD_GLOBAL))
        self._registry = Registry.of(built.module, built.repository)

    def run(
        self, problem: AttentionProblem, values: Mapping[str, F64], names: Sequence[str]
    ) -> DeviceRun:
        """Run a problem with values in buffers, and read results by name.

        Raises:
            RunError: a call of HIP failed, or no kernel serves the problem.
        """
        entry = ENTRIES[problem.direction]
        buffered = buffers(problem, self._arch)
        raw = {name: buffer.written(values.get(name)) for name, buffer in buffered.items()}
        with ExitStack() as stack:
            arrays = {address_names(name): array for name, array in raw.items()}
            held = {
                name: stack.enter_context(self._memory(array))
                for name, array in (*arrays.items(), *tables(problem).items())
            }
            begin, end = (stack.enter_context(self._event()) for _ in range(2))
            given = entry_values(problem, self._arch, self._parameters[entry]) | held
            self._check("hipEventRecord", begin, None)
            status = self._call(entry, given)
            if status < 0:
                found = f"{entry} returned {status:g}"
                raise RunError(Finding(str(problem), found, "a problem that the library serves"))
            self._check("hipEventRecord", end, None)
            self._check("hipEventSynchronize", end)
            milliseconds = ctypes.c_float()
            self._check("hipEventElapsedTime", ctypes.byref(milliseconds), begin, end)
            for name, array in raw.items():
                self._copy(array, held[address_names(name)], _TO_HOST)
        findings = tuple(
            f"{name} was written to between its rows"
            for name, buffer in buffered.items()
            if buffer.filled != "values" and not buffer.is_clean(raw[name])
        )
        selected = () if problem.use_asm else self._registry.select(problem, self._arch)
        return DeviceRun(
            {name: buffered[name].read(raw[name]) for name in names},
            tuple(one.name for one in selected),
            findings,
            seconds=milliseconds.value / 1e3,
        )

    def _check(self, function: str, *arguments: Any) -> None:
        status = getattr(self._hip, function)(*arguments)
        if status:
            raise RunError(Finding(function, f"error {status} of HIP", "success"))

    def _copy(self, array: NDArray[Any], address: int, kind: int) -> None:
        places = [ctypes.c_void_p(address), ctypes.c_void_p(array.ctypes.data)]
        target, source = places if kind == _TO_DEVICE else reversed(places)
        self._check("hipMemcpy", target, source, ctypes.c_size_t(array.nbytes), kind)

    @contextmanager
    def _memory(self, array: NDArray[Any]) -> Iterator[int]:
        """Allocate device memory with the contents of an array."""
        pointer = ctypes.c_void_p()
        size = ctypes.c_size_t(max(1, array.nbytes))
        self._check("hipMalloc", ctypes.byref(pointer), size)
        try:
            self._copy(array, int(pointer.value or 0), _TO_DEVICE)
            yield int(pointer.value or 0)
        finally:
            self._hip.hipFree(pointer)

    @contextmanager
    def _event(self) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        self._check("hipEventCreate", ctypes.byref(event))
        try:
            yield event
        finally:
            self._hip.hipEventDestroy(event)
