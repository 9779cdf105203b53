"""Samples problems that a library sends to its kernels, and tries the kernels with them."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from glob import escape

import numpy as np

from gfxemu.launch import Options
from qola.aiter.attention import ATTENTION, ENTRIES, MAIN_ROLE
from qola.codegen.ck.link import NotUnderstoodError
from qola.plan.model import KernelInstance
from qola_base.progress import log
from qola_lab.problems import AttentionProblem, Device
from qola_lab.verify.case import Case, Sample, settle
from qola_lab.verify.host import Built, Host, on_device
from qola_lab.verify.outcome import Outcome, share_trials
from qola_lab.verify.propose import (
    ASSEMBLY_CALLS,
    EVERY,
    Fields,
    hints_of_code_object,
    hints_of_fields,
    propose,
    propose_assembly,
)
from qola_lab.verify.replay import MAX_INSTRUCTIONS, outcomes
from qola_lab.verify.repository import Dispatch, is_asm_helper
from qola_lab.verify.store import VerdictStore

#: Proposals for each sample, if the dispatch is parsed.
_ATTEMPTS = 900
CALLS = 100
"""Proposals for each sample, if each of them calls the library."""
MAX_WORK = 1 << 17
"""Default limit of the work of a problem: two heads of 256 x 256."""
#: How much more work further problems may take: longer ones enter loops that short ones skip.
_LARGER = 4
#: Of problems, each third one has as many heads as models have.
_MANY_HEADS = 3

#: The problem, counted from 0, with the smallest head dimension and sequences of every length.
_SMALLEST = 1
#: Head dimensions are multiples of it, as in the tensors of AITER's callers.
_HDIM_STEP = 8

#: Proposes a sample, as `propose` does for a direction and the fields of a kernel.
Proposal = Callable[..., Sample | None]
#: Returns the names of the kernels that a problem launches.
Launched = Callable[[AttentionProblem], Sequence[str]]


@dataclass(frozen=True)
class VerifyRequest:
    """The kernels to try, and the number and size of problems.

    Attributes:
        arch: of the device.
        patterns: of kernels' names, with * and ?; none for all.
        max_work: of each problem, see `AttentionProblem.work`.
        max_samples: problems at most; beyond `samples`, for kernels of which code has not run.
        first: number of the first problem.
        max_instructions: of each launch, after which it counts as endless.
        processes: that try kernels side by side.
    """

    arch: str
    patterns: tuple[str, ...] = ()
    samples: int = 3
    seed: int = 0
    max_work: int = MAX_WORK
    max_samples: int = 0
    first: int = 0
    max_instructions: int = MAX_INSTRUCTIONS
    processes: int = 1

    def takes(self, kernel: str) -> bool:
        """Whether a kernel is to be tried."""
        return not self.patterns or any(fnmatchcase(kernel, one) for one in self.patterns)

    def further(self, found: Sequence[Outcome]) -> VerifyRequest | None:
        """Return a request with further, larger problems for kernels of which code has not run."""
        first = self.first + self.samples
        kernels = [
            one.kernel
            for one in found
            if one.state == "passed" and one.coverage and one.coverage.missing
        ]
        if not kernels or first >= self.max_samples:
            return None
        return replace(
            self,
            patterns=tuple(map(escape, kernels)),
            samples=min(self.samples, self.max_samples - first),
            first=first,
            max_work=self.max_work * _LARGER,
        )


@dataclass(frozen=True)
class KernelSamples:
    """Problems of a kernel instance.

    Attributes:
        missing: why there are fewer than requested, else empty.
        cu_count: see Device.
    """

    kernel: str
    samples: tuple[Sample, ...]
    missing: str = ""
    cu_count: int = 0


def draw(
    kernel: KernelInstance,
    kernels: Sequence[KernelInstance],
    dispatch: Dispatch,
    request: VerifyRequest,
) -> KernelSamples:
    """Return problems that a kernel instance is launched for, the same for a seed.

    A helper kernel has no fields for masks and lengths: it is sampled by the fields of the main
    kernels of its library that it runs with.
    """
    fields = _of_mains(kernels, kernel.direction)
    rows = [row for row in dispatch.rows if kernel.name in row]
    mains = sorted({name for row in rows for name in row if name in fields})
    if not mains:
        return KernelSamples(kernel.name, (), "no row of the dispatch launches it")
    if all(fields[name].get("squant") for name in mains):
        missing = "AITER's entry points do not ask for static quantization"
        return KernelSamples(kernel.name, (), missing)
    if front := dispatch.hidden_by(kernel.name):
        others = [name for name in front if name in fields]
        missing = f"unreachable: all that it could take goes to {', '.join(others[:4])}"
        missing += f" or another of {len(others)}" if len(others) > 4 else ""
        return KernelSamples(kernel.name, (), missing)
    proposals = [partial(propose, kernel.direction, fields[name]) for name in mains]
    taken: Launched = lambda problem: dispatch.taken(problem, request.arch)  # noqa: E731
    masks_k = kernel.name in fields
    return search(kernel.name, proposals, taken, request, _ATTEMPTS, masks_k=masks_k)


def proposals_of(kernel: KernelInstance, kernels: Sequence[KernelInstance]) -> list[Proposal]:
    """Return proposals for a kernel whose dispatch cannot be parsed, perhaps none."""
    fields = _of_mains(kernels, kernel.direction)
    own = [fields[kernel.name]] if kernel.name in fields else [*fields.values()]
    return [
        partial(propose, kernel.direction, shape)
        for shape in own
        if shape.get("dtype") and shape.get("hdim_q")
    ]


def _of_mains(kernels: Sequence[KernelInstance], direction: str) -> dict[str, Fields]:
    main = MAIN_ROLE[direction]
    return {one.name: one.fields for one in kernels if one.role == main}


def search(
    name: str,
    proposals: Sequence[Proposal],
    launched: Launched,
    request: VerifyRequest,
    attempts: int,
    *,
    masks_k: bool = True,
) -> KernelSamples:
    """Draw problems until a kernel is launched for enough of them; equal for equal seeds.

    Each sample has a number of attempts, each with one of the proposals. The second sample has the
    smallest head dimension that goes to the kernel; with it come, behind all others, samples for
    each length of K in batch mode.

    Args:
        attempts: proposals for each sample, at most.
        masks_k: whether the kernel masks columns of K; helper kernels do not.
    """
    if not proposals:
        return KernelSamples(name, (), "its problems are unknown")
    found: dict[Sample, None] = {}
    further: list[Sample] = []
    for number in range(request.first, request.first + request.samples):
        for attempt in range(attempts):
            chosen = generator(name, request.seed, number, attempt)
            proposal = proposals[int(chosen.integers(len(proposals)))]
            edge = int(chosen.integers(1 << 30)) if attempt else number
            # Some kernels take no problem that is small enough with many heads.
            many = number % _MANY_HEADS == _MANY_HEADS - 1 and attempt < attempts // 3
            smallest = number == _SMALLEST
            sample = proposal(edge, chosen, request.max_work, many=many, every_length=smallest)
            if sample is None or sample in found:
                continue
            if name in launched(sample.problem):
                if smallest:
                    sample = _with_smallest_hdim(name, sample, launched)
                    further = _of_every_length(name, sample, launched) if masks_k else []
                found[sample] = None
                break
    missing = ""
    if lost := request.samples - len(found):
        missing = f"{lost} of {request.samples} problems not found among {attempts} each"
    return KernelSamples(name, (*found, *further), missing)


def _with_smallest_hdim(name: str, sample: Sample, launched: Launched) -> Sample:
    """Return a sample with the smallest head dimension that goes to the kernel."""
    problem = sample.problem
    for size in range(_HDIM_STEP, problem.hdim_q, _HDIM_STEP):
        smaller = replace(problem, hdim_q=size, hdim_v=min(size, problem.hdim_v))
        if size >= problem.rotary_dim and name in launched(smaller):
            return replace(sample, problem=smaller)
    return sample


def _of_every_length(name: str, sample: Sample, launched: Launched) -> list[Sample]:
    """Return the smallest problems of batch mode for each length of K.

    All sequences of batch mode have one length. A mask has rows that end at each column.
    """
    problem = sample.problem
    if problem.is_group_mode or problem.mask_type != "no" or problem.seqlen_knew:
        return []
    one_head = replace(problem, nhead_q=1, nhead_k=1, nhead_bias=1, batched_alibi_slopes=False)
    found = []
    for length in range(1, EVERY + 1):
        for rows in dict.fromkeys((1, problem.seqlen_q[0])):
            one = replace(one_head, seqlen_q=(rows,), seqlen_k=(length,))
            if name in launched(one):
                found.append(replace(sample, problem=one))
                break
    return found


def generator(name: str, seed: int, number: int, attempt: int) -> np.random.Generator:
    """Return the random generator of an attempt, equal for equal arguments."""
    text = f"{name} {seed} {number} {attempt}".encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:16], "little")
    return np.random.Generator(np.random.PCG64(digest))


#: Recordings that are compared to find argument bytes that differ each time.
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
    found = {one.kernel: one for one in _verify_samples(built, request, store)}
    further = request.further([*found.values()])
    while further is not None:
        for one in _verify_samples(built, further, store):
            found[one.kernel] = found[one.kernel].extended(one)
        further = further.further([one for one in found.values() if further.takes(one.kernel)])
    return sorted(share_trials(found.values()), key=lambda outcome: outcome.kernel)


def _verify_samples(
    built: Built, request: VerifyRequest, store: VerdictStore | None
) -> list[Outcome]:
    """Return an outcome for each requested kernel and the problems of the request."""
    samples = sample_kernels(built, request)
    if store is None:
        options = Options(limit=request.max_instructions)
        return list(outcomes(_record_cases(built, request, samples), request.processes, options))
    found: list[Outcome] = []
    for first in range(0, len(samples), _AT_ONCE):
        cases = record_settled(built, request, samples[first : first + _AT_ONCE])
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


def record_calls(built: Built, arch: str, problems: Sequence[AttentionProblem]) -> Case:
    """Record the launches of a library for problems."""
    samples = KernelSamples(built.module, tuple(map(Sample, problems)))
    (case,) = _record_cases(built, VerifyRequest(arch), [samples])
    return case


def record_settled(
    built: Built, request: VerifyRequest, samples: Sequence[KernelSamples]
) -> list[Case]:
    """Record the launches for samples, without argument bytes that differ in each process.

    Kernels get structures of host code whose padding is uninitialised stack memory. These bytes
    differ between recordings of several new processes, which have other addresses.
    """
    spawn = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        # A pool has one process, so that each call is one of another process.
        pools = [stack.enter_context(ProcessPoolExecutor(1, spawn)) for _ in range(_MORE_CALLS)]
        again = [pool.submit(_record_cases, built, request, samples) for pool in pools]
        cases = _record_cases(built, request, samples)
        for one in again:
            cases = list(map(settle, cases, one.result()))
        return cases


def sample_kernels(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    """Return the requested kernels, with problems or the reason why there are none."""
    return [*_sample_by_dispatch(built, request), *_sample_assembly(built, request)]


def _record_cases(
    built: Built, request: VerifyRequest, samples: Sequence[KernelSamples]
) -> list[Case]:
    found: list[Case] = []
    for cu_count in sorted({one.cu_count for one in samples}):
        own = [one for one in samples if one.cu_count == cu_count]
        found += on_device(built, Device(request.arch, cu_count), _record, own)
    return sorted(found, key=lambda case: case.kernel)


def _sample_by_dispatch(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    """Return the kernels that dispatches launch; where one is not understood, call the library."""
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
            by_calls = _search_library(built, request, proposals, CALLS)
            unfound = {one.kernel: proposals[one.kernel] for one in by_calls if not one.samples}
            found += [one for one in by_calls if one.samples]
            found += [
                one if one.samples else replace(one, missing=f"{one.missing}; {why}")
                for one in _search_library(built, request, unfound, CALLS, _DIVIDED)
            ]
    return found


def _sample_assembly(built: Built, request: VerifyRequest) -> list[KernelSamples]:
    """Return assembly kernels and their helper kernels, found by calling the library."""
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
        found += _search_library(built, request, kernels, ASSEMBLY_CALLS, cu_count)
    return found


def _search_library(
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


def _record(host: Host, samples: Sequence[KernelSamples]) -> list[Case]:
    found = []
    for one in samples:
        calls = [host.call(sample) for sample in one.samples]
        calls = [replace(c, launches=tuple(map(host.isolate, c.launches))) for c in calls]
        launches = [launch for call in calls for launch in call.launches]
        codes = {launch.code: host.codes[launch.code] for launch in launches}
        names = dict.fromkeys(name for launch in launches for name in launch.names)
        known = {name: host.built.known_faults(name, host.arch) for name in names}
        known = {name: faults for name, faults in known.items() if faults}
        found.append(Case(one.kernel, host.arch, tuple(calls), one.missing, codes, known))
    return found
