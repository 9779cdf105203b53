"""Samples problems that a library sends to a kernel instance, the edges of its tiles first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.attention import AttentionProblem
from qola.plan.model import KernelInstance
from qola.verify.case import Sample
from qola.verify.dispatch import Dispatch, rows_of
from qola.verify.propose import Fields, has_many_heads, propose

#: Proposals for each sample; with _CALLS each proposal calls the library.
_ATTEMPTS = 900
_CALLS = 100
MAX_WORK = 1 << 17
"""Default limit of the work of a problem: two heads of 256 x 256."""

#: Proposes a sample: random generator, number of the edge to try or None for any, and whether it
#: has many heads.
Proposal = Callable[[np.random.Generator, int | None, bool], Sample | None]
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
) -> KernelSamples:
    """Return problems that a kernel instance is launched for, the same for a seed.

    Args:
        kernels: of its library. A helper kernel has no fields for masks and lengths, and is
            sampled by the fields of the main kernels that it runs with.
        device: its arch.
        samples: how many problems.
        max_work: of each, see `AttentionProblem.work`.
    """
    fields = _of_mains(kernels, kernel.direction)
    rows = rows_of(dispatch, kernel.name)
    mains = sorted({name for row in rows for name in row if name in fields})
    if not mains:
        return KernelSamples(kernel.name, (), "no row of the dispatch launches it")
    if all(fields[name].get("squant") for name in mains):
        return KernelSamples(
            kernel.name, (), "AITER's entry points do not ask for static quantization"
        )
    if front := dispatch.hidden_by(kernel.name):
        others = [name for name in front if name in fields]
        missing = f"unreachable: all that it could take goes to {', '.join(others[:4])}"
        missing += f" or another of {len(others)}" if len(others) > 4 else ""
        return KernelSamples(kernel.name, (), missing)
    proposal = _proposal(kernel.direction, [fields[name] for name in mains], max_work)
    taken: Launched = lambda problem: dispatch.taken(problem, device)  # noqa: E731
    return search(kernel.name, proposal, taken, samples, seed, _ATTEMPTS)


def draw_by_calls(
    kernel: KernelInstance,
    kernels: Sequence[KernelInstance],
    launched: Launched,
    samples: int,
    seed: int,
    max_work: int,
    cu_count: int = 0,
) -> KernelSamples:
    """Draw problems by calling the library, for a dispatch that cannot be parsed.

    Args:
        launched: calls the entry point.
        cu_count: of the device that `launched` uses.
    """
    fields = _of_mains(kernels, kernel.direction)
    own = [fields[kernel.name]] if kernel.name in fields else [*fields.values()]
    shapes = [shape for shape in own if shape.get("dtype") and shape.get("hdim_q")]
    if not shapes:
        return KernelSamples(kernel.name, (), "its data type and head dimension are unknown")
    proposal = _proposal(kernel.direction, shapes, max_work)
    return search(kernel.name, proposal, launched, samples, seed, _CALLS, cu_count)


def _of_mains(kernels: Sequence[KernelInstance], direction: str) -> dict[str, Fields]:
    main = MAIN_ROLE[direction]
    return {one.name: one.fields for one in kernels if one.role == main}


def _proposal(direction: str, shapes: Sequence[Fields], max_work: int) -> Proposal:
    def proposed(chosen: np.random.Generator, edge: int | None, many: bool) -> Sample | None:
        shape = shapes[int(chosen.integers(len(shapes)))]
        return propose(direction, shape, some_edge(chosen, edge), chosen, max_work, many=many)

    return proposed


def search(
    name: str,
    proposal: Proposal,
    launched: Launched,
    samples: int,
    seed: int,
    attempts: int,
    cu_count: int = 0,
) -> KernelSamples:
    """Draw problems until a kernel is launched for enough of them; equal for equal seeds.

    Args:
        attempts: proposals for each sample.
        cu_count: of the device that the problems are for.
    """
    found: dict[Sample, None] = {}
    for number in range(samples):
        for attempt in range(attempts):
            chosen = generator(name, seed, number, attempt)
            # Some kernels take no problem that is small enough with many heads.
            many = has_many_heads(number) and attempt < attempts // 3
            sample = proposal(chosen, number if attempt == 0 else None, many)
            if sample is None or sample in found:
                continue
            if name in launched(sample.problem):
                found[sample] = None
                break
    missing = ""
    if len(found) < samples:
        missing = f"{samples - len(found)} of {samples} problems not found among {attempts} each"
    return KernelSamples(name, tuple(found), missing, cu_count)


def generator(name: str, seed: int, number: int, attempt: int) -> np.random.Generator:
    """Return the random generator of an attempt, equal for equal arguments."""
    text = f"{name} {seed} {number} {attempt}".encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:16], "little")
    return np.random.Generator(np.random.PCG64(digest))


def some_edge(chosen: np.random.Generator, edge: int | None) -> int:
    """Return the edge that is to be tried, any where that is left open."""
    return int(chosen.integers(1 << 30)) if edge is None else edge
