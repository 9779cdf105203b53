"""Runs the program on the fake HIP runtime, and says which entry points launch kernels."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.attention import ATTENTION, ENTRIES
from qola.launch.fake_hip import FakeHip, Launch, read_log
from qola.launch.problems import Problem, problems
from qola.plan.model import Plan, PlannedModule

#: Problems of a failed proof that are shown.
_SHOWN = 5
#: What the program says of a problem, among AITER's own words.
_STATUS = re.compile(r"^qola_launch (\S+)$", re.MULTILINE)
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
            yield f"    {answer.problem}: {said}"
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
    asked = problems(plan, module)
    found: list[Proof] = []
    for arch in archs:
        hip = FakeHip(runtime, arch, tuple(library_dirs))
        found += _proofs(plan, module, arch, tuple(_answers(program, asked, hip)))
    return tuple(found)


def _answers(program: Path, asked: Sequence[Problem], hip: FakeHip) -> Iterator[Answer]:
    """Yield an answer for each problem; after one that ends the process, another one goes on."""
    with tempfile.TemporaryDirectory() as scratch:
        table, log = Path(scratch, "table"), Path(scratch, "log")
        for _ in range(_CRASHES):
            if not asked:
                return
            table.write_text("".join(f"{problem.line()}\n" for problem in asked), encoding="utf-8")
            log.unlink(missing_ok=True)
            ended = hip.run([program, table], log)
            # Each problem has a stream of its own, numbered from 1.
            of: dict[int, list[Launch]] = {}
            for launch in read_log(log):
                of.setdefault(launch.stream, []).append(launch)
            statuses = [float(status) for status in _STATUS.findall(ended.stdout)]
            for number, (problem, status) in enumerate(zip(asked, statuses, strict=False), 1):
                yield Answer(problem, status, tuple(of.get(number, ())))
            if len(statuses) < len(asked):
                yield Answer(asked[len(statuses)], None, (), ended.stderr)
            asked = asked[len(statuses) + 1 :]


def _proofs(
    plan: Plan, module: PlannedModule, arch: str, answers: Sequence[Answer]
) -> Iterator[Proof]:
    """Yield a proof for each entry point that has kernels for an arch, and kind of kernels."""
    assembly = {c.sha256 for c in module.code_objects if c.arch == arch}

    def proof(entry: str, of: str, own: Sequence[Answer], counts: bool) -> Proof:
        ran = [a for a in own if a.ran and _has(a, assembly) is counts]
        failed = [a for a in own if not a.ran][:_SHOWN]
        return Proof(arch, entry, of, len(own), tuple(ran), tuple(failed))

    kernels = [k for k in plan.kernels_of(module) if not k.role.startswith("asm_")]
    compiled = {(kernel.direction, arch) for kernel in kernels for arch in kernel.archs}
    for direction, entry in ENTRIES.items():
        own = [answer for answer in answers if answer.problem.entry == entry]
        if not own:
            continue
        if (direction, arch) in compiled:
            yield proof(entry, "kernel instances", own, False)
        if assembly and direction == ATTENTION[module.name].direction:
            yield proof(entry, "assembly kernels", own, True)


def _has(answer: Answer, digests: Collection[str]) -> bool:
    return any(launch.code_object_sha256 in digests for launch in answer.launches)
