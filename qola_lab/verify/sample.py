"""Samples problems that a library sends to a kernel instance, the edges of its tiles first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from glob import escape

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.plan.model import KernelInstance
from qola_lab.problems import AttentionProblem
from qola_lab.verify.case import Sample
from qola_lab.verify.outcome import Outcome
from qola_lab.verify.propose import EVERY, Fields, propose
from qola_lab.verify.replay import MAX_INSTRUCTIONS
from qola_lab.verify.repository import Dispatch

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
