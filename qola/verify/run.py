"""Calls a built library with problems for its kernels, and tries what it launches."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial

from qola.aiter.attention import ENTRIES
from qola.attention import AttentionProblem, Device
from qola.codegen.ck.link import NotUnderstoodError
from qola.emulate.launch import Options
from qola.plan.model import KernelInstance
from qola.verify.assembly import Hints, draw_assembly, of_code_object, of_fields
from qola.verify.case import Case, Sample, settle
from qola.verify.host import Built, Host, on_device
from qola.verify.outcome import Outcome
from qola.verify.replay import MAX_INSTRUCTIONS, outcomes
from qola.verify.repository import is_beside
from qola.verify.sample import MAX_WORK, Drawn, draw, draw_called

#: Times that a library is called to tell what is another each time: a byte may be the same twice.
_MORE_CALLS = 3
#: Compute units of the smallest part that an MI308 can be divided into: where a dispatch asks if a
#: problem keeps the device busy, the answer is another than on a whole one.
_DIVIDED = 20


@dataclass(frozen=True)
class Wish:
    """What to try.

    Attributes:
        patterns: of kernels' names, with * and ?; none for all.
        max_work: of each problem, see `AttentionProblem.work`.
        max_instructions: of each launch, after which it counts as endless.
        checked: also look for registers and LDS that are read before they are written.
        processes: that try kernels side by side.
    """

    arch: str
    patterns: tuple[str, ...] = ()
    samples: int = 3
    seed: int = 0
    max_work: int = MAX_WORK
    max_instructions: int = MAX_INSTRUCTIONS
    checked: bool = False
    processes: int = 1

    def takes(self, kernel: str) -> bool:
        """Whether a kernel is to be tried."""
        return not self.patterns or any(fnmatchcase(kernel, one) for one in self.patterns)


def verify(built: Built, wish: Wish) -> list[Outcome]:
    """Try kernels of a library with problems that it sends to them.

    Returns:
        An outcome for each kernel instance and each assembly kernel that is asked for, sorted by
        name. What could not be tried is there, too, and says why.

    Raises:
        QolaError: a process died, the library's host code in it or the emulator.
    """
    options = Options(checked=wish.checked, limit=wish.max_instructions)
    return outcomes(record(built, wish), wish.processes, options)


def record(built: Built, wish: Wish) -> list[Case]:
    """Return what a library launches for problems of each kernel that is asked for, and run none.

    Raises:
        VerifyError: the process that called the library died.
    """
    return _recorded(built, wish, _all_drawn(built, wish))


def called(built: Built, arch: str, problems: Sequence[AttentionProblem]) -> Case:
    """Return what a library launches for problems of its entry points, and run none of it.

    Raises:
        VerifyError: the process that called the library died.
    """
    (case,) = _recorded(built, Wish(arch), [Drawn(built.module, tuple(map(Sample, problems)))])
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
                cases = list(map(settle, cases, one.result()))
            found += cases
    return found


def _all_drawn(built: Built, wish: Wish) -> list[Drawn]:
    return [*_drawn(built, wish), *_drawn_assembly(built, wish)]


def _recorded(built: Built, wish: Wish, drawn: Sequence[Drawn]) -> list[Case]:
    found: list[Case] = []
    for cu_count in sorted({one.cu_count for one in drawn}):
        own = [one for one in drawn if one.cu_count == cu_count]
        found += on_device(built, Device(wish.arch, cu_count), _record, own)
    return sorted(found, key=lambda case: case.kernel)


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
                one if one.samples else replace(one, missing=f"{one.missing}; {why}")
                for one in by_calls
            ]
    return found


def _drawn_by_calls(
    built: Built, wish: Wish, kernels: Sequence[KernelInstance], asked: Sequence[KernelInstance]
) -> list[Drawn]:
    """Return the same where the dispatch is not understood: by what the library does."""
    found: list[Drawn] = []
    for cu_count in (0, _DIVIDED):
        work = partial(_draw_called, wish=wish, kernels=kernels)
        drawn = on_device(built, Device(wish.arch, cu_count), work, asked)
        asked = [k for k, one in zip(asked, drawn, strict=True) if not one.samples]
        found += [one for one in drawn if one.samples or cu_count]
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
    for cu_count in sorted({_cu_count(one) for one in hints.values()}):
        asked = {name: one for name, one in hints.items() if _cu_count(one) == cu_count}
        work = partial(_draw_assembly, wish=wish)
        found += on_device(built, Device(wish.arch, cu_count), work, asked)
    return found


def _cu_count(hints: Sequence[Hints]) -> int:
    return hints[0].cu_count if hints else 0


def _draw_assembly(host: Host, hints: Mapping[str, Sequence[Hints]], *, wish: Wish) -> list[Drawn]:
    how = wish.samples, wish.seed, wish.max_work
    return [
        draw_assembly(name, host.direction, own, host.launched, *how) for name, own in hints.items()
    ]


def _draw_called(
    host: Host, asked: Sequence[KernelInstance], *, wish: Wish, kernels: Sequence[KernelInstance]
) -> list[Drawn]:
    how = wish.samples, wish.seed, wish.max_work
    return [
        draw_called(one, kernels, host.launched, *how, cu_count=host.device.cu_count)
        for one in asked
    ]


def _record(host: Host, drawn: Sequence[Drawn]) -> list[Case]:
    found = []
    for one in drawn:
        calls = [host.call(sample) for sample in one.samples]
        calls = [replace(c, launches=tuple(map(host.alone, c.launches))) for c in calls]
        launches = [launch for call in calls for launch in call.launches]
        codes = {launch.code: host.codes[launch.code] for launch in launches}
        found.append(Case(one.kernel, host.arch, tuple(calls), one.missing, codes))
    return found
