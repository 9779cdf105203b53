"""Samples problems that a library sends to a kernel instance, the edges of its tiles first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.plan.model import KernelInstance
from qola_lab.problems import AttentionProblem
from qola_lab.verify.case import Sample
from qola_lab.verify.dispatch import Dispatch
from qola_lab.verify.propose import EVERY, Fields, propose

#: Proposals for each sample, if the dispatch is parsed.
_ATTEMPTS = 900
CALLS = 100
"""Proposals for each sample, if each of them calls the library."""
MAX_WORK = 1 << 17
"""Default limit of the work of a problem: two heads of 256 x 256."""
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
    device: str,
    samples: int,
    seed: int = 0,
    max_work: int = MAX_WORK,
    first: int = 0,
) -> KernelSamples:
    """Return problems that a kernel instance is launched for on a device, the same for a seed.

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
    taken: Launched = lambda problem: dispatch.taken(problem, device)  # noqa: E731
    how = samples, seed, max_work, _ATTEMPTS, 0, first
    return search(kernel.name, proposals, taken, *how, masks_k=kernel.name in fields)


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
    samples: int,
    seed: int,
    max_work: int,
    attempts: int,
    cu_count: int = 0,
    first: int = 0,
    *,
    masks_k: bool = True,
) -> KernelSamples:
    """Draw problems until a kernel is launched for enough of them; equal for equal seeds.

    Each sample has a number of attempts, each with one of the proposals. The second sample has the
    smallest head dimension that goes to the kernel; with it come, behind all others, samples for
    each length of K in batch mode.

    Args:
        first: number of the first sample.
        masks_k: whether the kernel masks columns of K; helper kernels do not.
    """
    if not proposals:
        return KernelSamples(name, (), "its problems are unknown", cu_count)
    found: dict[Sample, None] = {}
    further: list[Sample] = []
    for number in range(first, first + samples):
        for attempt in range(attempts):
            chosen = generator(name, seed, number, attempt)
            proposal = proposals[int(chosen.integers(len(proposals)))]
            edge = int(chosen.integers(1 << 30)) if attempt else number
            # Some kernels take no problem that is small enough with many heads.
            many = number % _MANY_HEADS == _MANY_HEADS - 1 and attempt < attempts // 3
            smallest = number == _SMALLEST
            sample = proposal(edge, chosen, max_work, many=many, every_length=smallest)
            if sample is None or sample in found:
                continue
            if name in launched(sample.problem):
                if smallest:
                    sample = _with_smallest_hdim(name, sample, launched)
                    further = _of_every_length(name, sample, launched) if masks_k else []
                found[sample] = None
                break
    missing = ""
    if len(found) < samples:
        missing = f"{samples - len(found)} of {samples} problems not found among {attempts} each"
    return KernelSamples(name, (*found, *further), missing, cu_count)


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
