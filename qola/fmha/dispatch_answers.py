"""Which kernels a plan dispatches a problem to, or which conditions keep it from every kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.attention import AttentionProblem
from qola.attention.ck import MASK_TYPES, condition_text
from qola.codegen.ck.link import NotUnderstoodError
from qola.fmha.registry import Entry, Registry, RegistryError
from qola.plan.model import Plan, TritonInstance
from qola.verify.repository import Repository

CK, ASSEMBLY, TRITON = "CK instance", "assembly", "Triton"

_NEAREST = 3


@dataclass(frozen=True)
class DispatchedKernel:
    """A kernel that a problem is launched with.

    Attributes:
        kind: CK, ASSEMBLY or TRITON.
        facts: names and values, such as its tile and grid.
    """

    name: str
    kind: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Refusal:
    """A kernel that a problem does not go to.

    Attributes:
        needs: conditions of the dispatch that do not hold, in the words of problems.
        others: how many kernels refuse the problem for just these.
    """

    name: str
    needs: tuple[str, ...]
    others: int


@dataclass(frozen=True)
class DispatchAnswer:
    """The kernels that serve a problem on an arch.

    Attributes:
        kernels: those that it is launched with, in order.
        notes: further remarks.
        refusals: without kernels, those that it misses by the fewest conditions.
        reason: without kernels, why there are none.
    """

    problem: AttentionProblem
    arch: str
    kernels: tuple[DispatchedKernel, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reason: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the answer as text."""
        yield f"{self.arch} {self.problem}"
        for kernel in self.kernels:
            yield f"  {kernel.name}"
            for name, value in (("kind", kernel.kind), *kernel.facts):
                yield f"    {name:<9} {value}"
        if not self.kernels:
            yield f"  no kernel: {self.reason}"
        for refusal in self.refusals:
            others = f" (and {refusal.others} more)" if refusal.others else ""
            yield f"    {refusal.name}{others}"
            yield f"      needs   {', '.join(refusal.needs)}"
        for note in self.notes:
            yield f"  note: {note}"


def directions_of(plan: Plan) -> list[str]:
    """Return the main directions of the libraries of a plan: fwd, bwd."""
    return [ATTENTION[module.name].direction for module in plan.modules]


def answer(
    plan: Plan, repository: Path, problem: AttentionProblem, *, any_lse: bool
) -> list[DispatchAnswer]:
    """Return, for each arch of a plan, which kernels a problem goes to.

    The dispatch is read as `Registry.select` reads it; nothing is built or run.

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
    asked = (
        [problem, replace(problem, return_lse=True)]
        if any_lse and not problem.return_lse
        else [problem]
    )
    entries: Sequence[Entry] = ()
    try:
        for one in asked:
            entries = registry.select(replace(one, use_asm=False), arch)
            if entries:
                if one.return_lse != problem.return_lse:
                    notes.append("return_lse=yes: the library has no kernel for it without the LSE")
                problem = one
                break
        if entries:
            found = tuple(_instance(entry, problem) for entry in entries)
            return DispatchAnswer(problem, arch, (*found, *triton), tuple(notes))
        refusals = _nearest(source, asked[-1], arch)
    except (RegistryError, NotUnderstoodError) as error:
        return DispatchAnswer(problem, arch, triton, tuple(notes), reason=str(error))
    count = sum(arch in entry.archs for entry in registry)
    reason = f"{count} kernels of {source.planned.library} for {arch}, none takes it; nearest:"
    return DispatchAnswer(asked[-1], arch, triton, tuple(notes), refusals, reason)


def _nearest(source: Repository, problem: AttentionProblem, arch: str) -> tuple[Refusal, ...]:
    rows = source.dispatch(problem.direction).refusals(replace(problem, use_asm=False), arch)
    grouped: dict[tuple[str, ...], list[str]] = {}
    for names, failed in rows:
        needs = tuple(dict.fromkeys(map(condition_text, failed)))
        grouped.setdefault(needs, []).append(names[0])
    nearest = list(grouped.items())[:_NEAREST]
    return tuple(Refusal(names[0], needs, len(set(names)) - 1) for needs, names in nearest)


def _instance(entry: Entry, problem: AttentionProblem) -> DispatchedKernel:
    config = entry.config
    hdim = f"{config.hdim_q}x{config.hdim_v}"
    own = f"{problem.hdim_q}x{problem.hdim_v}"
    facts = [("library", f"{entry.library}, {config.family}")]
    # Helper kernels, such as dot_do_o, have no head dimension of Q.
    padded = hdim != own and config.hdim_q >= problem.hdim_q
    facts.append(("hdim", f"{hdim}, which pads the problem's {own}" if padded else hdim))
    facts.append(("tile", _tile(entry)))
    shown = [
        f"{name}={_value(value)}"
        for name, value in config.values().items()
        if name not in ("family", "dtype", "hdim_q", "hdim_v", "tile", "more")
    ]
    facts.append(("fields", " ".join(shown)))
    facts.append(("grid", "the library's host code computes it: --launch"))
    return DispatchedKernel(entry.name, CK, tuple(facts))


def _tile(entry: Entry) -> str:
    tile = entry.config.tile
    waves = tile.waves[0] if tile.waves else ()
    threads = 64
    for number in waves:
        threads *= number
    return f"{tile}, {threads} threads" if waves else str(tile)


def _value(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _triton(plan: Plan, problem: AttentionProblem, arch: str) -> Iterator[DispatchedKernel]:
    """Yield kernels in Triton with the problem's data type and head dimension."""
    for kernel in plan.triton:
        for instance in kernel.instances:
            if instance.arch == arch and _fits(instance, problem):
                chosen = " ".join(f"{k}={v}" for k, v in sorted(instance.choices.items()))
                facts = (("function", kernel.function), ("choices", chosen))
                yield DispatchedKernel(instance.name, TRITON, facts)


def _fits(instance: TritonInstance, problem: AttentionProblem) -> bool:
    known = {name.lower(): value for name, value in instance.choices.items()}
    mask = str([*MASK_TYPES].index(problem.mask_type))
    asked = {"dtype": problem.dtype, "hdim": str(problem.hdim_q), "causal": mask}
    return (
        {"dtype", "hdim"} <= known.keys()
        and problem.hdim_q == problem.hdim_v
        and all(known.get(name, value) == value for name, value in asked.items())
    )
