"""A module in a manifest's repository: its plan, kernels and dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.aiter.proven_faults import KernelFacts, has_fault, read_proven_faults
from qola.plan.model import KernelInstance, Plan, PlannedModule
from qola_base.errors import Finding, QolaError
from qola_lab.problems import AttentionProblem
from qola_lab.verify.dispatch import AssemblyDispatch, Dispatch


class VerifyError(QolaError, title="the library cannot be verified"):
    """A library that cannot be verified at all."""


@dataclass(frozen=True)
class Repository:
    """A module in a manifest's repository.

    Attributes:
        repository: the directory with plan.json, the dispatch and the kernels' sources.
    """

    module: str
    repository: Path

    @cached_property
    def plan(self) -> Plan:
        """The plan that the library was built from."""
        return Plan.from_json(self._text("plan.json"))

    @cached_property
    def planned(self) -> PlannedModule:
        """The module in the plan."""
        return self.plan.module(self.module)

    @cached_property
    def kernels(self) -> list[KernelInstance]:
        """Kernel instances of the library."""
        return self.plan.kernels_of(self.planned)

    @property
    def parameters(self) -> dict[str, tuple[str, ...]]:
        """Parameters of each entry point behind arguments and stream."""
        return {e.name: (*e.required[2:], *e.optional) for e in self.planned.entries}

    def of_direction(self, direction: str) -> list[KernelInstance]:
        """Return kernel instances that the dispatch of a direction launches."""
        return [k for k in self.kernels if k.direction == direction and not is_asm_helper(k)]

    def has_assembly(self, direction: str, arch: str) -> bool:
        """Whether assembly kernels of the library may serve problems of a direction."""
        own = direction == ATTENTION[self.module].direction
        return own and any(code.arch == arch for code in self.planned.code_objects)

    def assembly(self, problem: AttentionProblem, arch: str) -> tuple[str, ...]:
        """Return code objects of the library that its host code gives a problem to, () for none.

        The variants of the manifest must cover the problem. Several code objects serve devices
        with different numbers of compute units.

        Raises:
            NotUnderstoodError: the host code is of an unknown form, or that of a backward.
        """
        direction = problem.direction
        # The library's entry point gives no others to assembly kernels (qola/plan/wrappers.py).
        plain = not problem.logits_soft_cap and not problem.min_seqlen_q
        if not (problem.use_asm and plain and self.has_assembly(direction, arch)):
            return ()
        files = [
            source.file
            for source in self.planned.sources
            if (source.role, source.direction, source.archs) == ("asm", direction, self.plan.archs)
            and source.file.endswith(f"_{arch}.cpp")
        ]
        folder = f"hsa/{arch}/{ATTENTION[self.module].asm_subdir}"
        text = self._text(next(iter(files), f"{self.module}/host code of {folder}"))
        embedded = {code.key for code in self.planned.code_objects}
        taken = AssemblyDispatch(text, folder).taken(problem, arch)
        return tuple(file for file in taken if file in embedded)

    def dispatch(self, direction: str) -> Dispatch:
        """Return the dispatch of a direction over all archs, or raise NotUnderstoodError."""
        archs = self.plan.archs
        # CK's file names are not the directions'.
        files = [
            source.file
            for source in self.planned.sources
            if (source.role, source.direction, source.archs) == ("dispatch", direction, archs)
        ]
        text = self._text(next(iter(files), f"{self.module}/dispatch of {direction}"))
        sources = {k.name: self._text(k.source) for k in self.of_direction(direction)}
        return Dispatch(text, sources)

    def known_faults(self, kernel: str, arch: str) -> tuple[str, ...]:
        """Return the names of the proven faults of a kernel that the plan warns of."""
        facts = [
            KernelFacts(one.name, one.archs, "", one.direction, one.fields)
            for one in self.kernels
            if one.name == kernel
        ]
        facts += [
            KernelFacts(code.key, (code.arch,), code.sha256)
            for code in self.planned.code_objects
            if (code.key, code.arch) == (kernel, arch)
        ]
        fixes = [warning.fix for warning in self.plan.warnings]
        return tuple(
            fault.name
            for fault in read_proven_faults()
            # Only the plan knows whether the tree has the texts of the fault.
            if any(f"#{fault.name})" in fix for fix in fixes)
            and any(has_fault(one, fault, [arch]) for one in facts)
        )

    def _text(self, name: str) -> str:
        try:
            return (self.repository / name).read_text(encoding="utf-8")
        except OSError as error:
            words = error.strerror or str(error)
            expected = "the repository of the manifest that the library was built from"
            raise VerifyError(Finding(f"{self.repository}/{name}", words, expected)) from None


def is_asm_helper(kernel: KernelInstance) -> bool:
    """Whether an assembly kernel's host code launches it, and no dispatch of CK."""
    return kernel.role.startswith("asm_")
