"""Runs recorded launches on the emulator, and compares the results with float64."""

from __future__ import annotations

import gc
import multiprocessing
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfxemu import single
from gfxemu.coverage import BlockSize, reachable_blocks
from gfxemu.faults import EmulationError
from gfxemu.launch import Device, Module, Options, Result
from gfxemu.program import Program
from qola_base.errors import Finding, QolaError
from qola_base.formats import F64
from qola_base.progress import log
from qola_lab.problems import AttentionProblem
from qola_lab.reference.attention import Forward
from qola_lab.verify.case import Call, Case, Launch
from qola_lab.verify.expected import (
    BETWEEN,
    compare,
    expected,
    joined,
    judge,
    left_by_forward,
    row_sums,
)
from qola_lab.verify.outcome import Coverage, KernelFault, Outcome, Trial
from qola_lab.verify.tensors import (
    Buffer,
    Tensors,
    address_names,
    arithmetic,
    buffers,
    filled,
    tables,
    tensors,
)

TILE = 16
"""Columns that a kernel takes at once, at least: limits are wider for fewer."""

MAX_INSTRUCTIONS = 100_000_000
"""Instructions of a launch after which it counts as endless; samples take a few millions."""

#: Kernels that are loaded at once: a kernel of 5,000 instructions takes 10 MB when it is encoded.
_MOST_MODULES = 8
#: Alignment of HIP's allocations in bytes.
_ALIGNED = 256


class ReplayError(QolaError, title="kernels could not be tried"):
    """A process that tried kernels died."""


def outcomes(
    cases: Sequence[Case], processes: int = 1, options: Options | None = None
) -> Iterator[Outcome]:
    """Yield the outcome of each case; a number of processes run cases side by side."""
    processes = max(1, processes)
    with ProcessPoolExecutor(
        max_workers=max(1, min(processes, sum(len(case.calls) for case in cases))),
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(options or Options(limit=MAX_INSTRUCTIONS),),
    ) as pool:
        # A process tries all problems of a case, because it decodes the kernel once. With fewer
        # cases than processes, several share them.
        parts = -(-processes // max(1, len(cases)))
        running = [[pool.submit(_try_case, one) for one in _divide(case, parts)] for case in cases]
        try:
            for case, trials in zip(cases, running, strict=True):
                tried = tuple(trial for part in trials for trial in part.result()[0])
                about = case.kernel, case.arch, tried, case.missing, case.digest
                outcome = Outcome(*about, known=case.known, coverage=_joined(trials))
                ran = f": {outcome.coverage} ran" if outcome.coverage else ""
                log.info(f"{outcome.state}: {case.kernel} ({case.arch}){ran}")
                yield outcome
        except BrokenProcessPool:
            words = "the process that ran it died"
            raise ReplayError(Finding(case.kernel, words, "an answer")) from None
        finally:
            # An interrupted run waits only for the kernels that are being tried.
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class EmulatedRun:
    """Results of launches.

    Attributes:
        instructions: of waves.
        faults: such as an access out of range.
        error: why a launch could not be run, and the rest was not; empty where all were.
        stopped: the kernel of this launch.
    """

    results: Mapping[str, F64]
    instructions: int
    faults: tuple[KernelFault, ...]
    error: str
    stopped: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[str, ...]:
        """The faults as text."""
        return tuple(map(str, self.faults))


class Emulator:
    """A device, and the kernels that were loaded to it."""

    def __init__(self, options: Options) -> None:
        self._device = Device(options)
        self._modules: dict[str, Module] = {}
        self._blocks: dict[str, tuple[Mapping[int, BlockSize], set[int]]] = {}

    def begin(self) -> None:
        """Forget which code of kernels was executed."""
        self._blocks.clear()
        for module in self._modules.values():
            module.forget_blocks()

    def coverage(self, kernel: str) -> Coverage | None:
        """Return the code of a kernel that was executed since `begin`; None if it was not run."""
        if kernel not in self._blocks:
            return None
        blocks, executed = self._blocks[kernel]
        return Coverage.from_blocks(tuple(blocks.values()), executed)

    def try_call(self, call: Call, arch: str, codes: Mapping[str, str]) -> Trial:
        """Run a call and compare its results."""
        problem = call.problem
        if call.error:
            return Trial(call.sample, call.names, (), (), call.error)
        given = tensors(problem, arch, call.sample.data)
        numbers = arithmetic(problem, arch, TILE)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            left = left_by_forward(problem, given, numbers) if problem.direction == "bwd" else ()
            wanted = expected(problem, given, numbers, left)
            sums = row_sums(problem, given, left)
            between = [name for name in BETWEEN if name in buffers(problem, arch)]
            values = contents(problem, given, arch, left)
            ran = self.run(call, arch, codes, values, (*wanted, *between))
            verdicts = [] if ran.error else compare(ran.results, wanted)
            more, judged = judge(call, ran.results, wanted, verdicts, sums, numbers)
        found = call.sample, call.names, (*verdicts, *more)
        return Trial(*found, ran.faults, ran.error, ran.stopped, judged)

    def run(
        self,
        call: Call,
        arch: str,
        codes: Mapping[str, str],
        values: Mapping[str, F64],
        names: Sequence[str],
    ) -> EmulatedRun:
        """Run the launches of a call in newly allocated memory.

        Args:
            codes: kernels by the digest of their code.
            values: of buffers, see `contents`.
            names: results to read.
        """
        of = buffers(call.problem, arch)
        memory = _Memory(self._device, call.problem, of, values)
        found: list[KernelFault] = []
        instructions, error = 0, ""
        stopped: tuple[str, ...] = ()
        stray: set[str] = set()
        try:
            for launch in call.launches:
                try:
                    done = self._launch(launch, codes, memory.addresses)
                except EmulationError as wrong:
                    error = str(wrong.fault).replace(launch.symbol, launch.names[0])
                    stopped = launch.names
                    break
                instructions += done.instructions
                found += [
                    KernelFault(
                        launch.names,
                        fault.kind,
                        str(fault).replace(launch.symbol, launch.names[0]),
                    )
                    for fault in done.faults
                ]
                for text in memory.find_stray_writes(of):
                    # A kernel after the one that wrote finds the same.
                    if text not in stray:
                        found.append(KernelFault(launch.names, text, text))
                        stray.add(text)
            results = {name: memory.read(of[name]) for name in names}
        finally:
            memory.free()
        return EmulatedRun(results, instructions, tuple(found), error, stopped)

    def _launch(
        self, launch: Launch, codes: Mapping[str, str], addresses: Mapping[str, int]
    ) -> Result:
        # The last one is the most recently used.
        module = self._modules.pop(launch.code, None)
        if module is None:
            if len(self._modules) == _MOST_MODULES:
                oldest = self._modules.pop(next(iter(self._modules)))
                self._device.map.remove(oldest.base)
            module = Module(self._device, single.from_json(codes[launch.code]))
        self._modules[launch.code] = module
        arguments = bytearray.fromhex(launch.arguments)
        for place, name, further in launch.addresses:
            struct.pack_into("<Q", arguments, place, addresses[name] + further)
        words = launch.grid, launch.block, bytes(arguments), launch.lds
        try:
            return self._device.launch(module, launch.symbol, *words)
        finally:
            self._follow(module.program(launch.symbol), launch.names)

    def _follow(self, program: Program, names: Sequence[str]) -> None:
        """Record the blocks of a kernel that were executed."""
        for name in names:
            if name not in self._blocks:
                self._blocks[name] = reachable_blocks(program), set()
            self._blocks[name][1].update(program.waits.executed())


_emulator: list[Emulator] = []


def _begin(options: Options) -> None:
    gc.set_threshold(100_000, 50, 50)
    _emulator.append(Emulator(options))


def _divide(case: Case, parts: int) -> Iterator[Case]:
    """Yield a case with some of the calls each time; each call once, in order."""
    size = max(1, -(-len(case.calls) // parts))
    for first in range(0, len(case.calls), size):
        yield replace(case, calls=case.calls[first : first + size])


def _joined(
    parts: Sequence[Future[tuple[tuple[Trial, ...], Coverage | None]]],
) -> Coverage | None:
    """Return the code that the parts of a case executed."""
    found: Coverage | None = None
    for part in parts:
        coverage = part.result()[1]
        found = coverage.joined(found) if coverage else found
    return found


def _try_case(case: Case) -> tuple[tuple[Trial, ...], Coverage | None]:
    # Decoded kernels and the caches of instructions are many objects and no cycles: collections
    # would take a third of the time.
    gc.freeze()
    emulator = _emulator[0]
    emulator.begin()
    calls = ((call, case.arch, case.codes_of(call)) for call in case.calls)
    return tuple(emulator.try_call(*call) for call in calls), emulator.coverage(case.kernel)


class _Memory:
    """Memory of the device for one call.

    Attributes:
        addresses: by the names of the entry point's arguments.
    """

    def __init__(
        self,
        device: Device,
        problem: AttentionProblem,
        of: Mapping[str, Buffer],
        contents: Mapping[str, F64],
    ) -> None:
        self._map = device.map
        self._held: dict[str, NDArray[Any]] = {}
        self._before: dict[str, NDArray[Any]] = {}
        self.addresses: dict[str, int] = {}
        for name, buffer in of.items():
            self._allocate(name, address_names(name), buffer.written(contents.get(name)))
        for name, array in tables(problem).items():
            self._allocate(name, name, array)

    def _allocate(self, name: str, argument: str, array: Any) -> None:
        # An empty tensor has an address, too.
        size = max(array.nbytes, array.itemsize)
        raw = np.zeros(size + _ALIGNED, np.uint8)
        begin = -int(raw.ctypes.data) % _ALIGNED
        whole = raw[begin : begin + size]
        self._held[name] = whole.view(array.dtype)[: array.size]
        self._held[name][...] = array
        self._before[name] = array
        self.addresses[argument] = self._map.own(whole)

    def read(self, buffer: Buffer) -> F64:
        """Return the values of a buffer."""
        return buffer.read(self._held[buffer.name])

    def find_stray_writes(self, of: Mapping[str, Buffer]) -> list[str]:
        """Return forbidden writes: to inputs, and between rows."""
        found = []
        for name, now in self._held.items():
            if name not in of or of[name].filled == "values":
                if not np.array_equal(now, self._before[name]):
                    found.append(f"{name} is an input, and was written to")
            elif not of[name].is_clean(now):
                found.append(f"{name} was written to between its rows")
        return found

    def free(self) -> None:
        """Give all of it back."""
        for address in self.addresses.values():
            self._map.remove(address)


def contents(
    problem: AttentionProblem, given: Tensors, arch: str, left: Sequence[Forward] = ()
) -> dict[str, F64]:
    """Return the values that buffers are filled with.

    A backward reads O and LSE of each sequence from `left`, by default those of the reference.
    """
    if problem.direction != "bwd":
        return filled(problem, given)
    left = left or left_by_forward(problem, given, arithmetic(problem, arch, TILE))
    o, lse = (joined(problem, [vars(one)[name] for one in left], name, 0) for name in ("o", "lse"))
    return filled(problem, given, o, lse)
