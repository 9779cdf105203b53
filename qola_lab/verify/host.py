"""Calls a built library on a device that runs nothing, and records the launches.

It runs in a process of its own, as a process has one device.
"""

from __future__ import annotations

import multiprocessing
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np

from gfxemu import single
from gfxemu.hip import Allocation, Hip, HipLaunch
from qola.aiter.attention import ENTRIES
from qola.report.assemble import make_report
from qola.report.library import read_library
from qola_base.code_object.reader import CodeObject
from qola_base.errors import Finding, QolaError
from qola_lab.problems import AttentionProblem, Device
from qola_lab.verify.c_api import CFunctions, Found, Stage, make_args
from qola_lab.verify.case import REFUSED, Call, Launch, Sample
from qola_lab.verify.repository import Repository, VerifyError
from qola_lab.verify.tensors import (
    DESCALES,
    address_names,
    buffers,
    entry_values,
    tables,
    takes_descales,
)

#: Time that a call may take in seconds: no kernel runs.
_SECONDS = 300.0
#: Crashes after which the other problems are not tried.
_CRASHES = 20
_FORK = multiprocessing.get_context("fork")
_Of = TypeVar("_Of")
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Built(Repository):
    """A module's library, with the files for running its host code without a GPU.

    Attributes:
        caller: its `<module>_caller` library, for the C++ entry points; None to call only C ones.
        runtime: the fake HIP runtime, gfxemu/fake_hip.
    """

    library: Path
    caller: Path | None
    runtime: Path

    def symbols(self, arch: str) -> dict[str, str]:
        """Return the kernel instance that each kernel of an arch belongs to."""
        report = make_report(self.plan, [read_library(self.library)])
        return {k.symbol: k.name for k in report.kernels if k.arch == arch and k.name}

    def code_objects(self, arch: str) -> dict[str, tuple[str, ...]]:
        """Return the assembly kernels of an arch by their digests; some are the same."""
        found: dict[str, tuple[str, ...]] = {}
        for code in self.planned.code_objects:
            if code.arch == arch:
                found[code.sha256] = (*found.get(code.sha256, ()), code.key)
        return found


def on_device(
    built: Built, device: Device, work: Callable[[Host, _Of], _Done], argument: _Of
) -> _Done:
    """Run a function in another process, which may die, with a device and the library loaded."""
    with ProcessPoolExecutor(1, _FORK) as pool:
        try:
            return pool.submit(_in_process, built, device, work, argument).result()
        except BrokenProcessPool:
            place, found = f"{built.library} on {device.arch}", "the process that called it died"
            raise VerifyError(Finding(place, found, "an answer")) from None


def _in_process(
    built: Built, device: Device, work: Callable[[Host, _Of], _Done], argument: _Of
) -> _Done:
    # Addresses of a thread's stack differ more from process to process than those of the first.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: work(Host(built, device), argument)).result()


def call_apart(
    built: Built, device: Device, problems: Sequence[AttentionProblem]
) -> Iterator[Call]:
    """Call a library's C functions with problems, in a process that may crash.

    After a crash another process goes on with the next problem, up to _CRASHES times.
    """
    samples = [Sample(problem) for problem in problems]
    for _ in range(_CRASHES):
        if not samples:
            return
        ours, theirs = multiprocessing.Pipe()
        process = _FORK.Process(target=_serve, args=(theirs, built, device, samples))
        process.start()
        theirs.close()
        answered: list[Call] = []
        ending = ""
        while len(answered) < len(samples) and not ending:
            if not ours.poll(_SECONDS):
                process.kill()
                ending = f"no answer after {_SECONDS:g} s"
                break
            try:
                answered.append(ours.recv())
            except EOFError:
                ending = "ended the process"
        process.join()
        if process.exitcode and not ending:
            # It crashed while it unloaded the library: the last problem's answer does not count.
            answered.pop()
            ending = "ended the process"
        yield from answered
        if ending:
            yield Call(samples[len(answered)], (), f"{ending} ({process.exitcode})")
            samples = samples[len(answered) + 1 :]
        else:
            samples = []


def _serve(connection: Connection, built: Built, device: Device, samples: Sequence[Sample]) -> None:
    host = Host(built, device)
    for sample in samples:
        connection.send(host.call_c(sample))


class Host:
    """A device that records launches and runs nothing, with the library loaded.

    Attributes:
        built: the library.
        arch, cu_count: of the device.
        codes: texts of kernels by themselves, by their digest (gfxemu.single).
    """

    def __init__(self, built: Built, device: Device) -> None:
        arch = self.arch = device.arch
        self.cu_count = device.cu_count
        self.built = built
        self._hip = Hip(built.runtime, arch, units=device.cu_count, runs=False)
        self._library = self._hip.load(built.library)
        self._objects: dict[str, CodeObject] = {}
        self._isolated: dict[tuple[str, str], str] = {}
        self.codes: dict[str, str] = {}
        self._symbols = built.symbols(arch)
        self._code_objects = built.code_objects(arch)

    def call(self, sample: Sample) -> Call:
        """Call the entry point with a problem, and return its kernel launches and its error."""
        entry = ENTRIES[sample.problem.direction]
        parameters = self.built.parameters[entry]
        values = entry_values(sample.problem, self.arch, parameters)
        without = map(address_names, () if takes_descales(parameters) else DESCALES)

        def run(held: dict[str, Allocation]) -> str:
            assert self.built.caller is not None
            taken = {name: held[name] for name in held.keys() - set(without)}
            # The C++ function, not the C one: the kernels' accumulators are tensors of their own
            # here, of which each can be checked, and it serves problems that C functions refuse.
            status = self._hip.caller(self.built.caller)(entry, {**values, **taken})
            error = REFUSED if status == -1 else f"returned {status:g}"
            return f"{entry} {error}" if status < 0 else ""

        return self._record(sample, run)

    def call_c(self, sample: Sample) -> Call:
        """Return the launches of the C function for a problem."""

        def run(held: dict[str, Allocation]) -> str:
            functions = self._functions(sample.problem)
            addresses = {name: memory.address for name, memory in held.items()}
            args = make_args(sample.problem, self.arch, addresses)
            error = functions.set_workspace_size(args)
            if error:
                return error
            size = max(1, int(args.workspace_size))
            held["workspace"] = self._hip.allocate(np.zeros(size, np.uint8))
            args.workspace = held["workspace"].address
            return functions.call(args)

        return self._record(sample, run)

    def _record(self, sample: Sample, run: Callable[[dict[str, Allocation]], str]) -> Call:
        """Return the launches of a call, which gets memory by argument and returns its error."""
        held = self._allocate(sample.problem)
        self._hip.launches.clear()
        launches: tuple[Launch, ...] = ()
        try:
            error = run(held)
            launches = tuple(self._launch(one, held) for one in self._hip.launches)
            self._hip.raise_error()
        except QolaError as wrong:
            error = str(wrong)
        finally:
            for memory in held.values():
                memory.free()
        return Call(sample, launches, error)

    def _allocate(self, problem: AttentionProblem) -> dict[str, Allocation]:
        """Return memory as large as a problem takes, by the names of arguments."""
        sizes = {
            address_names(name): -(-buffer.elements * buffer.format.bits // 8)
            for name, buffer in buffers(problem, self.arch).items()
        }
        sizes |= {name: array.nbytes for name, array in tables(problem).items()}
        zeros = {name: np.zeros(max(1, size), np.uint8) for name, size in sizes.items()}
        return {name: self._hip.allocate(array) for name, array in zeros.items()}

    def _launch(self, asked: HipLaunch, held: Mapping[str, Allocation]) -> Launch:
        arguments = bytearray(asked.arguments)
        own = {memory.address for memory in held.values()}
        known = [(a, a + size, "") for a, size in self._hip.allocations() if a not in own]
        known += [(m.address, m.address + m.array.nbytes, name) for name, m in held.items()]
        addresses = []
        for place in range(0, len(arguments) - 7, 4):
            (value,) = struct.unpack_from("<Q", arguments, place)
            found = next(((s, name) for s, end, name in known if s <= value < end), None)
            if found is None:
                continue
            start, name = found
            if not name:
                words = "memory that the library allocated itself"
                raise VerifyError(Finding(asked.kernel, words, "memory of its arguments only"))
            struct.pack_into("<Q", arguments, place, 0)
            addresses.append((place, name, value - start))
        return Launch(
            names=self._names(asked),
            symbol=asked.kernel,
            code=asked.code,
            grid=asked.grid,
            block=asked.block,
            lds=asked.dynamic_lds,
            arguments=arguments.hex(),
            addresses=tuple(addresses),
        )

    def isolate(self, launch: Launch) -> Launch:
        """Return a launch of a kernel by itself, in place of one of a code object."""
        key = launch.code, launch.symbol
        if key not in self._isolated:
            if launch.code not in self._objects:
                self._objects[launch.code] = CodeObject.read(self._hip.codes[launch.code])
            kernel = single.single(self._objects[launch.code], launch.symbol)
            self._isolated[key] = single.digest(kernel)
            self.codes[self._isolated[key]] = single.to_json(kernel)
        return replace(launch, code=self._isolated[key])

    def _names(self, asked: HipLaunch) -> tuple[str, ...]:
        """Return the plan's names of a kernel; several for equal code objects."""
        own = (self._symbols.get(asked.kernel, asked.kernel),)
        return self._code_objects.get(asked.code, own)

    def _functions(self, problem: AttentionProblem) -> CFunctions:
        return CFunctions(self._library, self.built.plan.namespace, problem.direction)

    def find(self, problem: AttentionProblem) -> Found:
        """Return the kernels that the C function `find` names."""
        return self._functions(problem).find(make_args(problem, self.arch))

    def named(self, found: Found, launches: Sequence[Launch]) -> tuple[str, ...]:
        """Return the names of the found kernels: the names of launches where these agree."""
        names: list[str] = []
        for at in range(found.count):
            launch = launches[at] if at < len(launches) else None
            stage = found.stages[at] if at < len(found.stages) else None
            if launch and stage in (None, Stage(launch.symbol, launch.code in self._code_objects)):
                names += launch.names
            elif stage:
                kind = " (assembly)" if stage.assembly else ""
                names.append(self._symbols.get(stage.symbol, stage.symbol) + kind)
            else:
                names.append("?")
        return tuple(names)

    def launched(self, problem: AttentionProblem) -> tuple[str, ...]:
        """Return the names of the kernels that a problem launches."""
        return self.call(Sample(problem)).names
