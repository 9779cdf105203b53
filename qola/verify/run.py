"""Calls a built library with problems for its kernels, and tries what it launches.

The library's host code runs on a HIP runtime without a GPU, in a process of its own, as a process
has one device.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qola.aiter.attention import ATTENTION, ENTRIES
from qola.codegen.ck.link import NotUnderstoodError
from qola.emulate import single
from qola.emulate.code_object import CodeObject
from qola.emulate.hip import Allocation, Asked, Hip
from qola.emulate.launch import Options
from qola.errors import Finding, QolaError
from qola.plan.model import PlannedKernel
from qola.report.assemble import make_report
from qola.report.device_code import read_library
from qola.verify.assembly import Hints, draw_assembly, of_code_object, of_fields
from qola.verify.case import REFUSED, Call, Case, Launch, settled
from qola.verify.memory import buffers, tables
from qola.verify.outcome import Outcome
from qola.verify.problem import Problem
from qola.verify.replay import outcomes
from qola.verify.repository import Repository, VerifyError, is_beside
from qola.verify.sample import MAX_WORK, Drawn, draw, draw_called
from qola.verify.values import address_names, entry_values

_Of = TypeVar("_Of")
_Done = TypeVar("_Done")
#: Times that a library is called to tell what is another each time: a byte may be the same twice.
_MORE_CALLS = 3
#: Compute units of the smallest part that an MI308 can be divided into: where a dispatch asks if a
#: problem keeps the device busy, the answer is another than on a whole one.
_DIVIDED = 20


@dataclass(frozen=True)
class Built(Repository):
    """A module's library, and what it takes to run it without a GPU.

    Attributes:
        library: of the module.
        caller: its `<module>_caller` library.
        runtime: the fake HIP runtime, cc/fake_hip.
    """

    library: Path
    caller: Path
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


@dataclass(frozen=True)
class Wish:
    """What to try.

    Attributes:
        patterns: of kernels' names, with * and ?; none for all.
        max_work: of each problem, see `Problem.work`.
        checked: also look for registers and LDS that are read before they are written.
        processes: that try kernels side by side.
    """

    arch: str
    patterns: tuple[str, ...] = ()
    samples: int = 3
    seed: int = 0
    max_work: int = MAX_WORK
    checked: bool = False
    processes: int = 1

    def takes(self, kernel: str) -> bool:
        """Whether a kernel is to be tried."""
        return not self.patterns or any(fnmatchcase(kernel, one) for one in self.patterns)


def verify(built: Built, wish: Wish, note: Callable[[str], None] = lambda _: None) -> list[Outcome]:
    """Try kernels of a library with problems that it sends to them.

    Returns:
        An outcome for each kernel instance and each assembly kernel that is asked for, sorted by
        name. What could not be tried is there, too, and says why.

    Raises:
        QolaError: a process died, the library's host code in it or the emulator.
    """
    return outcomes(record(built, wish), wish.processes, Options(checked=wish.checked), note)


def record(built: Built, wish: Wish) -> list[Case]:
    """Return what a library launches for problems of each kernel that is asked for, and run none.

    Raises:
        VerifyError: the process that called the library died.
    """
    return _recorded(built, wish, _all_drawn(built, wish))


def called(built: Built, arch: str, problems: Sequence[Problem]) -> Case:
    """Return what a library launches for problems of its entry points, and run none of it.

    Raises:
        VerifyError: the process that called the library died.
    """
    (case,) = _recorded(built, Wish(arch), [Drawn(built.module, tuple(problems))])
    return case


def record_settled(built: Built, wishes: Sequence[Wish]) -> list[Case]:
    """Return the same for several archs, without what is another in each process.

    Host code hands kernels what happens to be on its stack, between the members of a structure. It
    is told by calling it in processes that begin anew, each with addresses of its own.

    Raises:
        VerifyError: a process that called the library died.
    """
    spawn = multiprocessing.get_context("spawn")
    found: list[Case] = []
    with ExitStack() as stack:
        # A pool has one process, so that each call is one of another process.
        pools = [stack.enter_context(ProcessPoolExecutor(1, spawn)) for _ in range(_MORE_CALLS)]
        for wish in wishes:
            drawn = _all_drawn(built, wish)
            again = [pool.submit(_recorded, built, wish, drawn) for pool in pools]
            cases = _recorded(built, wish, drawn)
            for one in again:
                cases = list(map(settled, cases, one.result()))
            found += cases
    return found


def _all_drawn(built: Built, wish: Wish) -> list[Drawn]:
    return [*_drawn(built, wish), *_drawn_assembly(built, wish)]


def _recorded(built: Built, wish: Wish, drawn: Sequence[Drawn]) -> list[Case]:
    found: list[Case] = []
    for units in sorted({one.units for one in drawn}):
        of_device = [one for one in drawn if one.units == units]
        found += _on_device(built, wish, units, _record, of_device)
    return sorted(found, key=lambda case: case.kernel)


def _on_device(
    built: Built, wish: Wish, units: int, work: Callable[[_Host, _Of], _Done], of: _Of
) -> _Done:
    """Do some work in a process of its own, with a device and the library loaded."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(_in_process, built, wish, units, work, of).result()
        except BrokenProcessPool:
            place = f"{built.library} on {wish.arch}"
            words = "the process that called it died"
            raise VerifyError(Finding(place, words, "an answer")) from None


def _in_process(
    built: Built, wish: Wish, units: int, work: Callable[[_Host, _Of], _Done], of: _Of
) -> _Done:
    # Addresses of a thread's stack differ more from process to process than those of the first.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: work(_Host(built, wish, units), of)).result()


def _drawn(built: Built, wish: Wish) -> list[Drawn]:
    """Return the kernels that are asked for, with problems or with why there are none."""
    found: list[Drawn] = []
    for direction in dict.fromkeys(kernel.direction for kernel in built.kernels):
        kernels = [k for k in built.of_direction(direction) if wish.arch in k.archs]
        asked = [k for k in kernels if wish.takes(k.name)]
        if not asked:
            continue
        if direction not in ENTRIES:
            found += [Drawn(k.name, (), f"no problems are drawn for {direction}") for k in asked]
            continue
        how = wish.arch, wish.samples, wish.seed, wish.max_work
        try:
            dispatch = built.dispatch(direction)
            found += [draw(kernel, kernels, dispatch, *how) for kernel in asked]
        except NotUnderstoodError as error:
            why = f"the dispatch is not understood: {error}"
            by_calls = _drawn_by_calls(built, wish, kernels, asked)
            found += [
                one if one.problems else replace(one, missing=f"{one.missing}; {why}")
                for one in by_calls
            ]
    return found


def _drawn_by_calls(
    built: Built, wish: Wish, kernels: Sequence[PlannedKernel], asked: Sequence[PlannedKernel]
) -> list[Drawn]:
    """Return the same where the dispatch is not understood: by what the library does."""
    found: list[Drawn] = []
    for units in (0, _DIVIDED):
        work = partial(_draw_called, kernels=kernels)
        drawn = _on_device(built, wish, units, work, asked)
        asked = [k for k, one in zip(asked, drawn, strict=True) if not one.problems]
        found += [one for one in drawn if one.problems or units]
        if not asked:
            break
    return found


def _drawn_assembly(built: Built, wish: Wish) -> list[Drawn]:
    """Return assembly kernels, and those that run beside them, with problems or without."""
    keys = [code.key for code in built.planned.code_objects if code.arch == wish.arch]
    hints: dict[str, Sequence[Hints]]
    hints = {key: [of_code_object(key)] for key in keys if wish.takes(key)}
    for kernel in built.kernels:
        if is_beside(kernel) and wish.arch in kernel.archs and wish.takes(kernel.name):
            hints[kernel.name] = list(of_fields(kernel.fields, keys))
    found: list[Drawn] = []
    for units in sorted({_units(one) for one in hints.values()}):
        asked = {name: one for name, one in hints.items() if _units(one) == units}
        found += _on_device(built, wish, units, _draw_assembly, asked)
    return found


def _units(hints: Sequence[Hints]) -> int:
    return hints[0].units if hints else 0


class _Host:
    """A device that runs nothing, with the library loaded: what it asks for is looked at.

    Attributes:
        codes: texts of kernels by themselves, by their sha256.
    """

    def __init__(self, built: Built, wish: Wish, units: int) -> None:
        self.wish = wish
        self.units = units
        self._hip = Hip(built.runtime, wish.arch, units=units, runs=False)
        self._hip.load(built.library)
        self._call = self._hip.caller(built.caller)
        self._objects: dict[str, CodeObject] = {}
        self._alone: dict[tuple[str, str], str] = {}
        self.codes: dict[str, str] = {}
        self._symbols = built.symbols(wish.arch)
        self._code_objects = built.code_objects(wish.arch)
        self.direction = ATTENTION[built.module].direction
        self._parameters = built.parameters

    def call(self, problem: Problem) -> Call:
        """Return what the entry point launches for a problem."""
        entry = ENTRIES[problem.direction]
        values: dict[str, Any] = entry_values(problem, self.wish.arch, self._parameters[entry])
        held = self._allocate(problem)
        self._hip.asked.clear()
        error = ""
        try:
            status = self._call(entry, values | held)
            said = REFUSED if status == -1 else f"returned {status:g}"
            error = f"{entry} {said}" if status < 0 else ""
            launches = tuple(self._launch(one, held) for one in self._hip.asked)
        except QolaError as wrong:
            launches, error = (), str(wrong)
        finally:
            for memory in held.values():
                memory.free()
        return Call(problem, launches, error)

    def _allocate(self, problem: Problem) -> dict[str, Allocation]:
        """Return memory as large as a problem takes, by the names of arguments."""
        sizes = {
            address_names(name): -(-buffer.elements * buffer.format.bits // 8)
            for name, buffer in buffers(problem, self.wish.arch).items()
        }
        sizes |= {name: array.nbytes for name, array in tables(problem).items()}
        return {
            n: self._hip.allocate(np.zeros(max(1, size), np.uint8)) for n, size in sizes.items()
        }

    def _launch(self, asked: Asked, held: Mapping[str, Allocation]) -> Launch:
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
                raise VerifyError(Finding(asked.kernel, words, "memory of its arguments alone"))
            struct.pack_into("<Q", arguments, place, 0)
            addresses.append((place, name, value - start))
        return Launch(
            names=self._names(asked),
            symbol=asked.kernel,
            code=asked.code,
            grid=asked.grid,
            block=asked.block,
            lds=asked.dynamic_lds,
            arguments=bytes(arguments),
            addresses=tuple(addresses),
        )

    def alone(self, launch: Launch) -> Launch:
        """Return a launch of a kernel by itself, in place of one of a code object."""
        key = launch.code, launch.symbol
        if key not in self._alone:
            if launch.code not in self._objects:
                self._objects[launch.code] = CodeObject.read(self._hip.codes[launch.code])
            text = single.to_json(single.single(self._objects[launch.code], launch.symbol))
            self._alone[key] = hashlib.sha256(text.encode()).hexdigest()
            self.codes[self._alone[key]] = text
        return replace(launch, code=self._alone[key])

    def _names(self, asked: Asked) -> tuple[str, ...]:
        """Return what the plan calls a kernel: of equal code objects, all."""
        own = (self._symbols.get(asked.kernel, asked.kernel),)
        return self._code_objects.get(asked.code, own)

    def launched(self, problem: Problem) -> tuple[str, ...]:
        """Return the names of what a problem would be launched with."""
        return self.call(problem).names


def _draw_assembly(host: _Host, hints: Mapping[str, Sequence[Hints]]) -> list[Drawn]:
    wish = host.wish
    how = wish.samples, wish.seed, wish.max_work
    return [
        draw_assembly(name, host.direction, of, host.launched, *how) for name, of in hints.items()
    ]


def _draw_called(
    host: _Host, asked: Sequence[PlannedKernel], kernels: Sequence[PlannedKernel]
) -> list[Drawn]:
    wish = host.wish
    how = wish.samples, wish.seed, wish.max_work
    return [draw_called(one, kernels, host.launched, *how, units=host.units) for one in asked]


def _record(host: _Host, drawn: Sequence[Drawn]) -> list[Case]:
    found = []
    for one in drawn:
        calls = [host.call(problem) for problem in one.problems]
        calls = [replace(c, launches=tuple(map(host.alone, c.launches))) for c in calls]
        launches = [launch for call in calls for launch in call.launches]
        codes = {launch.code: host.codes[launch.code] for launch in launches}
        found.append(Case(one.kernel, host.wish.arch, tuple(calls), one.missing, codes))
    return found
