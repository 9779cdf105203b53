"""Runs a built library's kernels on the emulator, and holds what they write against float64.

A process has one device, and a kernel may end it: each worker is a process of its own.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qola.aiter.attention import ATTENTION, ENTRIES
from qola.codegen.ck.link import NotUnderstoodError
from qola.emulate.faults import EmulationError
from qola.emulate.hip import Allocation, Asked, Hip
from qola.emulate.launch import Options
from qola.errors import Finding, QolaError
from qola.plan.model import Plan, PlannedKernel, PlannedModule
from qola.reference.formats import F64
from qola.report.assemble import make_report
from qola.report.device_code import read_library
from qola.verify.assembly import Hints, draw_assembly, of_code_object, of_fields
from qola.verify.dispatch import Dispatch
from qola.verify.expected import compare, expected, left_by_forward
from qola.verify.memory import Buffer, buffers, filled
from qola.verify.outcome import Outcome, Trial
from qola.verify.problem import Problem
from qola.verify.sample import MAX_WORK, Drawn, draw
from qola.verify.tensors import Tensors, arithmetic, tensors
from qola.verify.values import address_names, entry_values

#: Columns that a kernel takes at once, at least: limits are wider for fewer.
_TILE = 16
#: Directions that there are problems for.
_DIRECTIONS = ("bwd", "fwd", "fwd_splitkv")


class VerifyError(QolaError):
    """A library that cannot be verified at all."""

    default_title = "the library cannot be verified"


@dataclass(frozen=True)
class Built:
    """A module's library, and what it takes to run it without a GPU.

    Attributes:
        library: of the module.
        caller: its `<module>_caller` library.
        runtime: the fake HIP runtime, cc/fake_hip.
        repository: the manifest's: plan.json, the dispatch and the kernels' sources.
    """

    module: str
    library: Path
    caller: Path
    runtime: Path
    repository: Path

    @cached_property
    def plan(self) -> Plan:
        """What the library was built from."""
        return Plan.from_json(self._text("plan.json"))

    @cached_property
    def planned(self) -> PlannedModule:
        """The module in the plan."""
        return self.plan.module(self.module)

    @cached_property
    def kernels(self) -> list[PlannedKernel]:
        """Kernel instances of the library."""
        return self.plan.kernels_of(self.planned)

    def of_direction(self, direction: str) -> list[PlannedKernel]:
        """Return kernel instances that the dispatch of a direction launches."""
        return [k for k in self.kernels if k.direction == direction and not _is_beside(k)]

    def dispatch(self, direction: str) -> Dispatch:
        """Return the dispatch of a direction, over all archs.

        Raises:
            NotUnderstoodError: it is of another form.
        """
        text = self._text(f"{self.module}/dispatch/fmha_{direction}_api.cpp")
        sources = {k.name: self._text(k.source) for k in self.of_direction(direction)}
        return Dispatch(text, sources)

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

    def _text(self, name: str) -> str:
        try:
            return (self.repository / name).read_text(encoding="utf-8")
        except OSError as error:
            words = error.strerror or str(error)
            expected_ = "the repository of the manifest that the library was built from"
            raise VerifyError(Finding(f"{self.repository}/{name}", words, expected_)) from None


def _is_beside(kernel: PlannedKernel) -> bool:
    """Whether an assembly kernel's host code launches it, and no dispatch of CK."""
    return kernel.role.startswith("asm_")


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
    """Try kernels of a library with problems that the dispatch sends to them.

    Returns:
        An outcome for each kernel instance and each assembly kernel that is asked for, sorted by
        name. What could not be tried is there, too, and says why.

    Raises:
        VerifyError: there is no such kernel, or a process that tried kernels died.
    """
    drawn = [*_drawn(built, wish), *_drawn_assembly(built, wish)]
    outcomes: list[Outcome] = []
    for units in sorted({one.units for one in drawn}):
        of_device = sorted(
            (one for one in drawn if one.units == units), key=lambda one: one.outcome.kernel
        )
        outcomes += _outcomes(built, wish, units, of_device, note)
    return sorted(outcomes, key=lambda outcome: outcome.kernel)


def _outcomes(
    built: Built, wish: Wish, units: int, drawn: Sequence[_Drawn], note: Callable[[str], None]
) -> Iterator[Outcome]:
    """Yield what becomes of kernels on devices with so many compute units."""
    with _processes(built, wish, units, min(wish.processes, len(drawn))) as pool:
        running = [(one, [pool.submit(_tried, p) for p in one.problems]) for one in drawn]
        for one, trials in running:
            try:
                found = tuple(trial.result() for trial in trials)
            except BrokenProcessPool:
                pool.shutdown(wait=False, cancel_futures=True)
                raise _died(one.outcome.kernel) from None
            outcome = replace(one.outcome, trials=found)
            note(f"{outcome.state}: {outcome.kernel} ({outcome.arch})")
            yield outcome


def _processes(
    built: Built, wish: Wish, units: int, count: int, *, runs: bool = True
) -> ProcessPoolExecutor:
    """Return processes with a device each, and the library loaded."""
    return ProcessPoolExecutor(
        max_workers=max(1, count),
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(built, wish, units, runs),
    )


def _died(kernel: str) -> VerifyError:
    return VerifyError(Finding(kernel, "the process that ran it died", "an answer"))


@dataclass(frozen=True)
class _Drawn:
    outcome: Outcome  # without trials
    problems: tuple[Problem, ...] = ()

    @property
    def units(self) -> int:
        """Compute units of the device for it."""
        return self.problems[0].units if self.problems else 0


def _drawn(built: Built, wish: Wish) -> Iterator[_Drawn]:
    """Yield the kernels that are asked for, with problems or with why there are none."""
    dispatches: dict[str, Dispatch | str] = {}
    for kernel in built.kernels:
        beside = _is_beside(kernel)
        if wish.arch not in kernel.archs or beside or not wish.takes(kernel.name):
            continue
        direction, missing = kernel.direction, ""
        problems: tuple[Problem, ...] = ()
        if direction not in _DIRECTIONS:
            missing = f"no problems are drawn for {direction}"
        else:
            if direction not in dispatches:
                try:
                    dispatches[direction] = built.dispatch(direction)
                except NotUnderstoodError as error:
                    dispatches[direction] = f"the dispatch is not understood: {error}"
            dispatch = dispatches[direction]
            if isinstance(dispatch, str):
                missing = dispatch
            else:
                kernels = [k for k in built.of_direction(direction) if wish.arch in k.archs]
                words = kernel, kernels, dispatch, wish.arch, wish.samples, wish.seed, wish.max_work
                try:
                    found = draw(*words)
                    problems, missing = found.problems, found.missing
                except NotUnderstoodError as error:
                    missing = f"the dispatch is not understood: {error}"
        yield _Drawn(Outcome(kernel.name, wish.arch, (), missing), problems)


def _drawn_assembly(built: Built, wish: Wish) -> list[_Drawn]:
    """Return assembly kernels, and those that run beside them, with problems or without."""
    keys = [code.key for code in built.planned.code_objects if code.arch == wish.arch]
    hints: dict[str, Sequence[Hints]]
    hints = {key: [of_code_object(key)] for key in keys if wish.takes(key)}
    for kernel in built.kernels:
        if _is_beside(kernel) and wish.arch in kernel.archs and wish.takes(kernel.name):
            hints[kernel.name] = list(of_fields(kernel.fields, keys))
    found: list[_Drawn] = []
    for units in sorted({one[0].units if one else 0 for one in hints.values()}):
        asked = {n: one for n, one in hints.items() if (one[0].units if one else 0) == units}
        with _processes(built, wish, units, 1, runs=False) as pool:
            try:
                drawn = pool.submit(_draw_assembly, asked, wish).result()
            except BrokenProcessPool:
                raise _died(f"{built.library}, called with problems for assembly kernels") from None
        found += [_Drawn(Outcome(d.kernel, wish.arch, (), d.missing), d.problems) for d in drawn]
    return found


class _Worker:
    """A device in a process of its own, with the library loaded."""

    def __init__(self, built: Built, wish: Wish, units: int, runs: bool) -> None:
        self._arch = wish.arch
        options = Options(checked=wish.checked)
        self._hip = Hip(built.runtime, wish.arch, options, units=units, runs=runs)
        self._hip.load(built.library)
        self._call = self._hip.caller(built.caller)
        self._symbols = built.symbols(wish.arch)
        self._code_objects = built.code_objects(wish.arch)
        self.direction = ATTENTION[built.module].direction
        self._parameters = {e.name: e.required[2:] for e in built.planned.entries}

    def tried(self, problem: Problem) -> Trial:
        """Return what comes of a problem."""
        given = tensors(problem, self._arch)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            wanted = expected(problem, given, arithmetic(problem, self._arch, _TILE))
        of = buffers(problem, self._arch)
        entry = ENTRIES[problem.direction]
        values: dict[str, Any] = entry_values(problem, self._arch, self._parameters[entry])
        self._hip.asked.clear()
        self._hip.launches.clear()
        memory = _Memory(self._hip)
        error = ""
        try:
            values |= memory.hold(problem, of, _contents(problem, given, self._arch))
            try:
                status = self._call(entry, values)
                error = f"{entry} returned {status:g}: no kernel" if status < 0 else ""
            except EmulationError as wrong:
                last = self._names(self._hip.asked[-1])
                error = str(wrong.fault).replace(wrong.fault.kernel, last[0])
            except QolaError as wrong:
                error = str(wrong)
            results = {name: memory.read(of[name]) for name in wanted}
            findings = memory.strayed(of)
        finally:
            memory.free()
        names = [self._names(one) for one in self._hip.asked]
        for (name, *_), one in zip(names, self._hip.launches, strict=False):
            of_kernel = one.result.kernel
            findings += [str(fault).replace(of_kernel, name) for fault in one.result.faults]
        return Trial(
            problem,
            tuple(name for of_launch in names for name in of_launch),
            () if error else tuple(compare(results, wanted, worst=True)),
            tuple(findings),
            error,
        )

    def _names(self, asked: Asked) -> tuple[str, ...]:
        """Return what the plan calls a kernel: of equal code objects, all."""
        own = (self._symbols.get(asked.kernel, asked.kernel),)
        return self._code_objects.get(asked.code, own)

    def launched(self, problem: Problem) -> tuple[str, ...]:
        """Return what a problem would be launched with; nobody looks at its tensors."""
        entry = ENTRIES[problem.direction]
        values: dict[str, Any] = entry_values(problem, self._arch, self._parameters[entry])
        names = [address_names(name) for name in buffers(problem, self._arch)]
        names += ["seqstart_q_ptr", "seqstart_k_ptr"] if problem.group else []
        self._hip.asked.clear()
        memory = self._hip.allocate(np.zeros(1))
        try:
            self._call(entry, values | dict.fromkeys(names, memory))
        finally:
            memory.free()
        return tuple(name for one in self._hip.asked for name in self._names(one))


_worker: list[_Worker] = []


def _begin(built: Built, wish: Wish, units: int, runs: bool) -> None:
    _worker.append(_Worker(built, wish, units, runs))


def _draw_assembly(hints: Mapping[str, Sequence[Hints]], wish: Wish) -> list[Drawn]:
    (worker,) = _worker
    return [
        draw_assembly(
            name, worker.direction, of, worker.launched, wish.samples, wish.seed, wish.max_work
        )
        for name, of in hints.items()
    ]


def _tried(problem: Problem) -> Trial:
    return _worker[0].tried(problem)


class _Memory:
    """Memory of the device for one call."""

    def __init__(self, hip: Hip) -> None:
        self._hip = hip
        self._held: dict[str, Allocation] = {}
        self._before: dict[str, Any] = {}

    def hold(
        self, problem: Problem, of: dict[str, Buffer], contents: dict[str, F64]
    ) -> dict[str, Allocation]:
        """Allocate and fill buffers; return addresses by the names of arguments."""
        raw = {name: buffer.written(contents.get(name)) for name, buffer in of.items()}
        found = {address_names(name): self._allocate(name, array) for name, array in raw.items()}
        if problem.group:
            for name, lengths in (("q", problem.rows), ("k", problem.columns)):
                starts = np.cumsum([0, *lengths]).astype(np.int32)
                found[f"seqstart_{name}_ptr"] = self._allocate(f"seqstart_{name}", starts)
        return found

    def _allocate(self, name: str, array: Any) -> Allocation:
        self._before[name] = array
        # An empty tensor has an address, too.
        self._held[name] = self._hip.allocate(array if array.size else np.zeros(1, array.dtype))
        return self._held[name]

    def read(self, buffer: Buffer) -> F64:
        """Return the values of a buffer."""
        return buffer.read(self._held[buffer.name].array[: buffer.elements])

    def strayed(self, of: dict[str, Buffer]) -> list[str]:
        """Return what was written that must not be: inputs, and what lies between rows."""
        said = []
        for name, before in self._before.items():
            now = self._held[name].array[: before.size]
            if name not in of or of[name].filled == "values":
                if not np.array_equal(now, before):
                    said.append(f"{name} is an input, and was written to")
            elif not of[name].is_clean(now):
                said.append(f"{name} was written to between its rows")
        return said

    def free(self) -> None:
        """Give all of it back."""
        for one in self._held.values():
            one.free()


def _contents(problem: Problem, given: Tensors, arch: str) -> dict[str, F64]:
    """Return what buffers are filled with; a backward is given what a forward leaves."""
    if problem.direction != "bwd":
        return filled(given)
    left = left_by_forward(problem, given, arithmetic(problem, arch, _TILE))
    joined = np.concatenate if problem.group else np.stack
    o: F64 = joined([one.o for one in left])
    lse: F64 = (
        np.concatenate([one.lse for one in left], 1)
        if problem.group
        else np.stack([one.lse for one in left])
    )
    return filled(given, o, lse)
