"""Runs the program on the fake HIP runtime, and says which entry points launch kernels."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.attention import ATTENTION, ENTRIES
from qola.files import write_if_changed
from qola.launch.fake_hip import FakeHip, Launch, read_log
from qola.launch.problems import Problem, problems
from qola.plan.model import Plan, PlannedModule

#: Problems of a failed proof that are shown.
_SHOWN = 5
#: What the program says of a problem, among AITER's own words.
_STATUS = re.compile(r"^qola_launch (\S+)$", re.MULTILINE)
#: Time that a process may take, in seconds: no kernel runs.
_SECONDS = 300.0
#: Processes that may end on a problem before the rest is left.
_CRASHES = 20


@dataclass(frozen=True)
class Answer:
    """What an entry point did with a problem.

    Attributes:
        status: what it returned; None where it ended the process.
        launches: the kernels it launched, in order.
        words: what the process said, where it ended.
    """

    problem: Problem
    status: float | None
    launches: tuple[Launch, ...]
    words: str = ""

    @property
    def ran(self) -> bool:
        """Whether it did what the problem asks for, as far as a GPU would have been told."""
        return self.status is not None and self.status >= 0 and bool(self.launches)


@dataclass(frozen=True)
class Proof:
    """Whether an entry point of a library launches kernels on an arch.

    Attributes:
        of: the kernels meant: the library's own, or ``assembly kernels``.
        tried: problems that were handed to it.
        ran: answers to those that launched such kernels.
        failed: the first answers to others.
    """

    arch: str
    entry: str
    of: str
    tried: int
    ran: tuple[Answer, ...]
    failed: tuple[Answer, ...]

    def lines(self) -> Iterator[str]:
        """Yield what is said of it."""
        head = f"{self.arch} {self.entry}:"
        if self.ran:
            ran, problem = len(self.ran), self.ran[0].problem
            yield f"{head} {ran} of {self.tried} problems launch {self.of}, such as {problem}"
            return
        yield f"{head} none of {self.tried} problems launches {self.of}"
        for answer in self.failed:
            said = "ended the process" if answer.status is None else f"returned {answer.status:g}"
            launched = f", launched {len(answer.launches)} other kernels" if answer.launches else ""
            yield f"    {answer.problem}: {said}{launched}"
            yield from (f"        {line}" for line in answer.words.splitlines()[-3:])


def prove(
    plan: Plan,
    module: PlannedModule,
    archs: Sequence[str],
    program: Path,
    runtime: Path,
    library_dirs: Sequence[Path] = (),
) -> tuple[Proof, ...]:
    """Hand a library problems on a device of each arch, and see what it launches.

    Args:
        archs: those that the library has code for.
        program: that of `qola.launch.program`, linked with the library.
        runtime: the fake HIP runtime.
        library_dirs: where the library is.
    """
    found: list[Proof] = []
    for arch in archs:
        hip = FakeHip(runtime, arch, tuple(library_dirs), timeout=_SECONDS)
        proofs = [p for d in ENTRIES for p in _of_entry(plan, module, d, arch, program, hip)]
        # A library for an arch that it has nothing for is as dead there as one that fails.
        main = ENTRIES[ATTENTION[module.name].direction]
        found += proofs or [Proof(arch, main, "kernels: none is planned", 0, (), ())]
    return tuple(found)


def _of_entry(
    plan: Plan, module: PlannedModule, direction: str, arch: str, program: Path, hip: FakeHip
) -> Iterator[Proof]:
    """Yield a proof for each kind of kernels that a direction has for an arch."""
    assembly = {c.sha256 for c in module.code_objects if c.arch == arch}
    kinds = {}
    own = [k for k in plan.kernels_of(module) if k.direction == direction and arch in k.archs]
    if any(not kernel.role.startswith("asm_") for kernel in own):
        kinds["kernel instances"] = False
    if assembly and direction == ATTENTION[module.name].direction:
        kinds["assembly kernels"] = True
    if not kinds:
        return
    answers = tuple(_answers(program, problems(plan, module, direction), hip))
    for of, wanted in kinds.items():
        ran = tuple(a for a in answers if a.ran and _has(a, assembly) is wanted)
        # Those that should have, first.
        others = sorted((a for a in answers if a not in ran), key=lambda a: not a.problem.assembly)
        failed = others if wanted else [a for a in others if not a.problem.assembly] or others
        yield Proof(arch, ENTRIES[direction], of, len(answers), ran, tuple(failed[:_SHOWN]))


def _answers(program: Path, asked: Sequence[Problem], hip: FakeHip) -> Iterator[Answer]:
    """Yield an answer for each problem; after one that ends the process, another one goes on."""
    with tempfile.TemporaryDirectory() as scratch:
        table, log = Path(scratch, "table"), Path(scratch, "log")
        for _ in range(_CRASHES):
            if not asked:
                return
            write_if_changed(table, "".join(f"{problem.line()}\n" for problem in asked))
            log.unlink(missing_ok=True)
            ended = hip.run([program, table], log)
            # Each problem has a stream of its own, numbered from 1.
            of: dict[int, list[Launch]] = {}
            for launch in read_log(log):
                of.setdefault(launch.stream, []).append(launch)
            statuses = [float(status) for status in _STATUS.findall(ended.stdout)]
            if ended.returncode:
                # Where it answered everything, its end is the last problem's.
                statuses = statuses[: len(asked) - 1]
            for number, (problem, status) in enumerate(zip(asked, statuses, strict=False), 1):
                yield Answer(problem, status, tuple(of.get(number, ())))
            if len(statuses) < len(asked):
                yield Answer(asked[len(statuses)], None, (), ended.stderr)
            asked = asked[len(statuses) + 1 :]


def _has(answer: Answer, digests: Collection[str]) -> bool:
    return any(launch.code_object_sha256 in digests for launch in answer.launches)
