"""Which kernels a plan dispatches a problem to, or which conditions keep it from every kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.codegen.ck.link import NotUnderstoodError
from qola.plan.model import Plan
from qola_lab.fmha.registry import Entry, Registry, RegistryError
from qola_lab.problems import AttentionProblem
from qola_lab.problems.problem import MASK_TYPES, condition_text
from qola_lab.verify.repository import Repository

CK, TRITON = "CK instance", "Triton"
_NEAREST = 3


@dataclass(frozen=True)
class DispatchedKernel:
    """A kernel that a problem is launched with.

    Attributes:
        kind: CK or TRITON.
        facts: names and values, such as its tile and grid.
    """

    name: str
    kind: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DispatchAnswer:
    """The kernels that serve a problem on an arch.

    Attributes:
        kernels: kernels that it is launched with, in order.
        reason: without kernels, why there are none.
        nearest: without kernels, those that it misses by the fewest conditions, each as lines.
    """

    problem: AttentionProblem
    arch: str
    kernels: tuple[DispatchedKernel, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    nearest: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the answer as text."""
        yield f"{self.arch} {self.problem}"
        for kernel in self.kernels:
            yield f"  {kernel.name}"
            for name, value in (("kind", kernel.kind), *kernel.facts):
                yield f"    {name:<9} {value}"
        if not self.kernels:
            yield f"  no kernel: {self.reason}"
        yield from self.nearest
        yield from (f"  note: {note}" for note in self.notes)


def planned_directions(plan: Plan) -> list[str]:
    """Return the main directions of the libraries of a plan: fwd, bwd."""
    return [ATTENTION[module.name].direction for module in plan.modules]


def answer(
    plan: Plan, repository: Path, problem: AttentionProblem, *, any_lse: bool
) -> list[DispatchAnswer]:
    """Return, for each arch of a plan, which kernels a problem goes to, by `Registry.select`.

    Args:
        repository: the directory with plan.json, the dispatch and the kernels' sources.
        any_lse: the problem does not say whether it wants the LSE.
    """
    return [_on_arch(plan, repository, problem, arch, any_lse) for arch in plan.archs]


def _on_arch(
    plan: Plan, repository: Path, problem: AttentionProblem, arch: str, any_lse: bool
) -> DispatchAnswer:
    triton = tuple(_triton(plan, problem, arch))
    libraries = [
        module.name
        for module in plan.modules
        if any(kernel.direction == problem.direction for kernel in plan.kernels_of(module))
    ]
    if not libraries:
        reason = f"no library has kernels of the direction {problem.direction}"
        if plan.triton:
            reason += ", and no kernel in Triton has its data type, head dimension and mask"
        return DispatchAnswer(problem, arch, triton, reason=reason)
    source = Repository(libraries[0], repository)
    registry = Registry.of(libraries[0], repository)
    notes = []
    if source.has_assembly(problem.direction, arch):
        ask = "--launch builds the library and asks it" if problem.use_asm else "use_asm=yes"
        notes.append(
            "assembly kernels may serve it instead, which AITER's host code decides if a caller "
            f"allows them: {ask}"
        )
    asked = [problem]
    if any_lse and not problem.return_lse:
        asked.append(replace(problem, return_lse=True))
    try:
        for candidate in asked:
            if entries := registry.select(replace(candidate, use_asm=False), arch):
                if candidate is not problem:
                    notes.append("return_lse=yes: the library has no kernel for it without the LSE")
                found = tuple(_instance(entry, candidate) for entry in entries)
                return DispatchAnswer(candidate, arch, (*found, *triton), tuple(notes))
        nearest = tuple(_nearest(registry, asked[-1], arch))
    except (RegistryError, NotUnderstoodError) as error:
        return DispatchAnswer(problem, arch, triton, tuple(notes), str(error))
    count = sum(arch in entry.archs for entry in registry)
    reason = f"{count} kernels of {source.planned.library} for {arch}, none takes it; nearest:"
    return DispatchAnswer(asked[-1], arch, triton, tuple(notes), reason, nearest)


def _nearest(registry: Registry, problem: AttentionProblem, arch: str) -> Iterator[str]:
    """Yield lines about kernels that do not take a problem, and the conditions that fail."""
    rows = registry.dispatch(problem.direction).refusals(replace(problem, use_asm=False), arch)
    groups: dict[tuple[str, ...], list[str]] = {}
    for names, failed in rows:
        needs = tuple(dict.fromkeys(map(condition_text, failed)))
        groups.setdefault(needs, []).append(names[0])
    for needs, kernels in list(groups.items())[:_NEAREST]:
        more = len(set(kernels)) - 1
        yield f"    {kernels[0]}" + (f" (and {more} more)" if more else "")
        yield f"      needs   {', '.join(needs)}"


def _instance(entry: Entry, problem: AttentionProblem) -> DispatchedKernel:
    config = entry.config
    hdim, own = f"{config.hdim_q}x{config.hdim_v}", f"{problem.hdim_q}x{problem.hdim_v}"
    # Helper kernels, such as dot_do_o, have no head dimension of Q.
    if hdim != own and config.hdim_q >= problem.hdim_q:
        hdim = f"{hdim}, which pads the problem's {own}"
    tile = str(config.tile)
    if config.tile.waves:
        tile = f"{tile}, {64 * math.prod(config.tile.waves[0])} threads"
    shown = " ".join(
        f"{name}={('no', 'yes')[value] if isinstance(value, bool) else value}"
        for name, value in config.values().items()
        if name not in ("family", "dtype", "hdim_q", "hdim_v", "tile", "more")
    )
    library = f"{entry.library}, {config.family}"
    grid = "the library's host code computes it: --launch"
    facts = (("library", library), ("hdim", hdim), ("tile", tile), ("fields", shown))
    return DispatchedKernel(entry.name, CK, (*facts, ("grid", grid)))


def _triton(plan: Plan, problem: AttentionProblem, arch: str) -> Iterator[DispatchedKernel]:
    """Yield kernels in Triton with the problem's data type, head dimension and mask."""
    mask = str([*MASK_TYPES].index(problem.mask_type))
    asked = {"dtype": problem.dtype, "hdim": str(problem.hdim_q), "causal": mask}
    if problem.hdim_q != problem.hdim_v:
        return
    for kernel in plan.triton:
        for instance in kernel.instances:
            known = {name.lower(): value for name, value in instance.choices.items()}
            fits = all(known.get(name, value) == value for name, value in asked.items())
            if instance.arch == arch and fits and {"dtype", "hdim"} <= known.keys():
                chosen = " ".join(f"{k}={v}" for k, v in sorted(instance.choices.items()))
                facts = (("function", kernel.function), ("choices", chosen))
                yield DispatchedKernel(instance.name, TRITON, facts)
