"""Calls a built library with problems for its kernels, and tries the launched kernels."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from gfxemu.launch import Options
from qola.aiter.attention import ATTENTION, ENTRIES
from qola.codegen.ck.link import NotUnderstoodError
from qola_base.progress import log
from qola_lab.problems import AttentionProblem, Device
from qola_lab.verify.case import Case, Sample, settle
from qola_lab.verify.host import Built, Host, on_device
from qola_lab.verify.outcome import Outcome, share_trials
from qola_lab.verify.propose import (
    ASSEMBLY_CALLS,
    hints_of_code_object,
    hints_of_fields,
    propose_assembly,
)
from qola_lab.verify.replay import outcomes
from qola_lab.verify.repository import is_asm_helper
from qola_lab.verify.sample import (
    CALLS,
    KernelSamples,
    Proposal,
    VerifyRequest,
    draw,
    proposals_of,
    search,
)
from qola_lab.verify.store import VerdictStore

#: Recordings that are compared to find bytes that differ each time.
_MORE_CALLS = 3
#: Kernels whose launches are recorded at once, of which all code is in memory.
_AT_ONCE = 1000
#: Compute units of the smallest part that an MI308 can be divided into: where a dispatch asks if a
#: problem keeps the device busy, the answer is another than on a whole one.
_DIVIDED = 20


def verify(
    built: Built, request: VerifyRequest, store: VerdictStore | None = None
) -> list[Outcome]:
    """Return an outcome for each requested kernel, sorted by name; one without trials says why.

    Args:
        store: keeps each outcome as soon as it is known. Kernels with an outcome of the same code
            and problems are not tried again.
    """
    found = {one.kernel: one for one in _verify_drawn(built, request, store)}
    further = request.further([*found.values()])
    while further is not None:
        for one in _verify_drawn(built, further, store):
            found[one.kernel] = found[one.kernel].extended(one)
        further = further.further([one for one in found.values() if further.takes(one.kernel)])
    return sorted(share_trials(found.values()), key=lambda outcome: outcome.kernel)


def _verify_drawn(
    built: Built, request: VerifyRequest, store: VerdictStore | None
) -> list[Outcome]:
    """Return an outcome for each requested kernel and the problems of the request."""
    drawn = _all_drawn(built, request)
    if store is None:
        options = Options(limit=request.max_instructions)
        return list(outcomes(_recorded(built, request, drawn), request.processes, options))
    found: list[Outcome] = []
    for first in range(0, len(drawn), _AT_ONCE):
        cases = _settled(built, request, drawn[first : first + _AT_ONCE])
        found += _verify_stored(cases, request, store)
    return found


def _verify_stored(
    cases: Sequence[Case], request: VerifyRequest, store: VerdictStore
) -> list[Outcome]:
    """Return the stored outcomes of cases, and try the other cases."""
    questions = {case.kernel: [case.digest, request.max_instructions] for case in cases}
    stored = {name: store.find(question, Outcome) for name, question in questions.items()}
    found = [outcome for outcome in stored.values() if outcome is not None]
    todo = [case for case in cases if stored[case.kernel] is None]
    log.info(
        f"{len(cases)} kernels ({request.arch}): {len(found)} have a stored verdict, "
        f"{len(todo)} are tried"
    )
    options = Options(limit=request.max_instructions)
    for outcome in outcomes(todo, request.processes, options):
        # A reason for no problem takes no time to find again.
        if outcome.trials:
            store.store(questions[outcome.kernel], outcome)
        found.append(outcome)
    return found


def called(built: Built, arch: str, problems: Sequence[AttentionProblem]) -> Case:
    """Record the launches of a library for problems."""
    samples = KernelSamples(built.module, tuple(map(Sample, problems)))
    (case,) = _recorded(built, VerifyRequest(arch), [samples])
    return case


def record_settled(built: Built, requests: Sequence[VerifyRequest]) -> list[Case]:
    """Record launches for several archs, without argument bytes that differ in each process.

    Kernels get structures of host code whose padding is uninitialised stack memory. These bytes
    differ between recordings of several new processes, which have other addresses.
    """
    return [
        case
        for request in requests
        for case in _settled(built, request, _all_drawn(built, request))
    ]


def _settled(built: Built, request: VerifyRequest, drawn: Sequence[KernelSamples]) -> list[Case]:
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        # A pool has one process, so that each call is one of another process.
        pools = [stack.enter_context(ProcessPoolExecutor(1, spawn)) for _ in range(_MORE_CALLS)]
        again = [pool.submit(_recorded, built, request, drawn) for pool in pools]
        cases = _recorded(built, request, drawn)
        for one in again:
            cases = list(map(settle, cases, one.result()))
        return cases


def _all_drawn(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    return [*_drawn(built, request), *_drawn_assembly(built, request)]


def _recorded(built: Built, request: VerifyRequest, drawn: Sequence[KernelSamples]) -> list[Case]:
    found: list[Case] = []
    for cu_count in sorted({one.cu_count for one in drawn}):
        own = [one for one in drawn if one.cu_count == cu_count]
        found += on_device(built, Device(request.arch, cu_count), _record, own)
    return sorted(found, key=lambda case: case.kernel)


def _drawn(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    """Return the requested kernels, with problems or the reason why there are none."""
    found: list[KernelSamples] = []
    for direction in dict.fromkeys(kernel.direction for kernel in built.kernels):
        kernels = [k for k in built.of_direction(direction) if request.arch in k.archs]
        asked = [k for k in kernels if request.takes(k.name)]
        if not asked:
            continue
        if direction not in ENTRIES:
            missing = f"no problems are sampled for {direction}"
            found += [KernelSamples(k.name, (), missing) for k in asked]
            continue
        try:
            dispatch = built.dispatch(direction)
            found += [draw(kernel, kernels, dispatch, request) for kernel in asked]
        except NotUnderstoodError as error:
            why = f"the dispatch is not understood: {error}"
            proposals = {kernel.name: proposals_of(kernel, kernels) for kernel in asked}
            by_calls = _searched(built, request, proposals, CALLS)
            unfound = {one.kernel: proposals[one.kernel] for one in by_calls if not one.samples}
            found += [one for one in by_calls if one.samples]
            found += [
                one if one.samples else replace(one, missing=f"{one.missing}; {why}")
                for one in _searched(built, request, unfound, CALLS, _DIVIDED)
            ]
    return found


def _drawn_assembly(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    """Return assembly kernels and their helper kernels, with problems or the reason for none."""
    keys = [code.key for code in built.planned.code_objects if code.arch == request.arch]
    hints = {key: [hints_of_code_object(key)] for key in keys if request.takes(key)}
    for kernel in built.kernels:
        if is_asm_helper(kernel) and request.arch in kernel.archs and request.takes(kernel.name):
            hints[kernel.name] = list(hints_of_fields(kernel.fields, keys))
    direction = ATTENTION[built.module].direction
    by_device: dict[int, dict[str, list[Proposal]]] = {}
    for name, own in hints.items():
        proposals: list[Proposal] = [partial(propose_assembly, direction, one) for one in own]
        by_device.setdefault(own[0].cu_count if own else 0, {})[name] = proposals
    found: list[KernelSamples] = []
    for cu_count, kernels in sorted(by_device.items()):
        found += _searched(built, request, kernels, ASSEMBLY_CALLS, cu_count)
    return found


def _searched(
    built: Built,
    request: VerifyRequest,
    proposals: Mapping[str, Sequence[Proposal]],
    calls: int,
    cu_count: int = 0,
) -> list[KernelSamples]:
    """Sample problems of kernels by calling the library on a device."""
    if not proposals:
        return []
    work = partial(_search, request=request, calls=calls)
    return on_device(built, Device(request.arch, cu_count), work, proposals)


def _search(
    host: Host, proposals: Mapping[str, Sequence[Proposal]], *, request: VerifyRequest, calls: int
) -> list[KernelSamples]:
    found = (search(name, own, host.launched, request, calls) for name, own in proposals.items())
    return [replace(one, cu_count=host.cu_count) for one in found]


def _record(host: Host, drawn: Sequence[KernelSamples]) -> list[Case]:
    found = []
    for one in drawn:
        calls = [host.call(sample) for sample in one.samples]
        calls = [replace(c, launches=tuple(map(host.isolate, c.launches))) for c in calls]
        launches = [launch for call in calls for launch in call.launches]
        codes = {launch.code: host.codes[launch.code] for launch in launches}
        names = dict.fromkeys(name for launch in launches for name in launch.names)
        known = {name: host.built.known_faults(name, host.arch) for name in names}
        known = {name: faults for name, faults in known.items() if faults}
        found.append(Case(one.kernel, host.arch, tuple(calls), one.missing, codes, known))
    return found
