"""A module in a manifest's repository: its plan and kernels, and which kernel a problem goes to.

A dispatch is conditions within each other in C++: arch, data type, head dimensions, then one row
after the other, of which the first that fits names the traits types of the kernels it launches.
They are evaluated unchanged. A condition that cannot be evaluated is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from qola.aiter.attention import ATTENTION
from qola.aiter.proven_faults import KernelFacts, has_fault, read_proven_faults
from qola.codegen.asm.embed import read_calls
from qola.codegen.ck.link import Links, NotUnderstoodError, call_of
from qola.codegen.ck.reachable import (
    Block,
    Formula,
    Part,
    compiled,
    conjuncts,
    leaves_of,
    read_branches,
)
from qola.plan.model import KernelInstance, Plan, PlannedModule
from qola_base.errors import CodegenError, Finding, QolaError
from qola_base.json_types import Scalar
from qola_lab.problems import AttentionProblem
from qola_lab.problems.problem import traits_of
from qola_lab.verify.tensors import dispatch_arguments

#: Kernel instances that a row launches.
_Row = tuple[str, ...]
#: The globals of a condition, for eval.
_Names = dict[str, Any]


class _Members:
    """The members of an object of CK; one that is not known is an error."""

    def __init__(self, name: str, values: Mapping[str, Scalar]) -> None:
        self._name = name
        self._values = values

    def __getattr__(self, member: str) -> Any:
        try:
            return self._values[member]
        except KeyError:
            raise NotUnderstoodError(f"{self._name}.{member} in the dispatch") from None


def _names(problem: AttentionProblem, device: str) -> _Names:
    """Return the names that conditions use."""
    return {
        "a": _Members("a", dispatch_arguments(problem)),
        "t": _Members("t", traits_of(problem)),
        "device_name": device,
        "begins": str.startswith,
        "__builtins__": {},
    }


def _holds(condition: str, names: _Names) -> bool:
    try:
        return bool(eval(compiled(condition), names))
    except NameError as error:
        raise NotUnderstoodError(f"{error} in `{condition.strip()[:200]}`") from None


def _failing(condition: str, names: _Names) -> Iterator[str]:
    """Yield the parts of a condition that do not hold."""
    for formula in conjuncts(condition):
        text = _text(formula)
        if not _holds(text, names):
            yield text


def _text(formula: Formula) -> str:
    if isinstance(formula, Part):
        return formula.text if formula.holds else f"!({formula.text})"
    if isinstance(formula, bool):
        return str(formula).lower()
    return (" && " if formula.every else " || ").join(f"({_text(one)})" for one in formula.formulas)


class Dispatch:
    """The dispatch of a direction, with the kernel instances that its rows launch.

    Attributes:
        rows: kernel instances of each row that launches one of these, in its order.
    """

    def __init__(self, text: str, kernels: Mapping[str, str]) -> None:
        """Read the C++ of a dispatch, with the source of each kernel instance by name.

        Raises NotUnderstoodError for an unknown form, as other methods do for an unknown name.
        """
        self._tree = read_branches(text)
        self._links = Links(kernels)
        self._named: dict[str, _Row] = {}
        self._leaves = leaves_of(self._tree)
        self._of_leaf = [self._kernels(leaf.text) for leaf in self._leaves]
        self.rows = tuple(dict.fromkeys(filter(None, self._of_leaf)))

    def taken(self, problem: AttentionProblem, device: str) -> _Row:
        """Return the kernel instances that a problem is launched with on an arch, () for none."""
        rows = self._rows(self._tree, _names(problem, device), "first")
        return next((self._kernels(text) for text, _ in rows), ())

    def fitting(self, problem: AttentionProblem, device: str) -> list[_Row]:
        """Return the kernel instances of all rows whose conditions a problem meets, in their order.

        It is launched with those that `taken` returns; others would serve it without them.
        """
        rows = self._rows(self._tree, _names(problem, device), "fitting")
        return list(dict.fromkeys(filter(None, (self._kernels(text) for text, _ in rows))))

    def refusals(
        self, problem: AttentionProblem, device: str
    ) -> list[tuple[_Row, tuple[str, ...]]]:
        """Return the kernel instances of each row, with the conditions that keep a problem from it.

        A condition is as `conjuncts` has it; one of a branch that is not entered because another
        in front of it takes the problem begins with "not ". The rows with the fewest come first.
        """
        rows = self._rows(self._tree, _names(problem, device), "all")
        found = [(self._kernels(text), failed) for text, failed in rows]
        return sorted((row for row in found if row[0]), key=lambda row: len(row[1]))

    def _rows(
        self, block: Block, names: _Names, which: Literal["first", "fitting", "all"]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the text of rows, and the conditions that keep a problem from each.

        Args:
            which: of branches of an if whose conditions hold, the first or all of them (an else
                only if no other holds); or all branches.
        """
        for branches in block.chains:
            taking = ""
            for condition, inner in branches:
                holds = _holds(condition, names)
                if which != "all" and (not holds or (taking and condition == "true")):
                    continue
                failed: tuple[str, ...] = (f"not ({taking})",) if taking else ()
                if not holds:
                    failed = tuple(_failing(condition, names))
                taking = taking or (" ".join(condition.split()) if holds else "")
                for text, further in self._rows(inner, names, which):
                    yield block.text + text, (*failed, *further)
                if which == "first":
                    break
        if not block.chains and "traits_<" in block.text:
            yield block.text, ()

    def hidden_by(self, kernel: str) -> _Row:
        """Return kernels that are launched in place of one that never is, () where it is."""
        rows = zip(self._leaves, self._of_leaf, strict=True)
        fronts = [leaf.front for leaf, names in rows if kernel in names]
        if not fronts or not all(fronts):
            return ()
        taking = (self._of_leaf[i] for branch in fronts[0] for i in branch)
        return tuple(dict.fromkeys(chain(*taking)))

    def _kernels(self, text: str) -> _Row:
        if text not in self._named:
            arch, called = call_of(text)
            found = [f for traits in called for f in self._links.files(traits, arch)]
            self._named[text] = tuple(dict.fromkeys(found))
        return self._named[text]


#: The function of AITER's host code that chooses an assembly (v3) kernel of the forward.
_V3_FORWARD = re.compile(r"^float fmha_fwd_v3\(", re.MULTILINE)


class AssemblyDispatch:
    """AITER's host code that chooses an assembly (v3) kernel of the forward on one arch."""

    def __init__(self, text: str, folder: str) -> None:
        """Read the host code, which begins with its table of code objects.

        Args:
            folder: tree-relative directory of the code objects, ``hsa/<arch>/fmha_v3_fwd``.

        Raises:
            NotUnderstoodError: it has an unknown form.
        """
        start = _V3_FORWARD.search(text)
        if start is None:
            raise NotUnderstoodError(f"{folder}: host code without fmha_fwd_v3")
        self._table, self._folder = text[: start.start()], folder
        self._tree = read_branches(text[start.start() :])

    def taken(self, problem: AttentionProblem, device: str) -> tuple[str, ...]:
        """Return the code objects that may serve a problem, by compute units; () for none.

        Raises:
            NotUnderstoodError: a condition reads something unknown.
        """
        names = _names(problem, device) | {"is_v3_api_check": False}
        leaf = _first_leaf(self._tree, names)
        if not leaf:
            return ()
        try:
            calls = read_calls(self._table + leaf, self._folder)
        except CodegenError as error:
            raise NotUnderstoodError(str(error)) from None
        return tuple(kernel.file for call in calls for kernel in call.kernels)


def _first_leaf(block: Block, names: dict[str, Any]) -> str:
    """Return the text of the first branch that holds and launches a kernel, "" for none."""
    for branches in block.chains:
        taken = next((inner for text, inner in branches if _holds(text, names)), None)
        if taken is not None and (found := _first_leaf(taken, names)):
            return found
    return block.text if "fmha_fwd_kernel_selector<" in block.text else ""


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
        folder = f"hsa/{arch}/{ATTENTION[self.module].asm_subdir}"
        text = self._source("asm", direction, f"host code of {folder}", f"_{arch}.cpp")
        embedded = {code.key for code in self.planned.code_objects}
        taken = AssemblyDispatch(text, folder).taken(problem, arch)
        return tuple(file for file in taken if file in embedded)

    def dispatch(self, direction: str) -> Dispatch:
        """Return the dispatch of a direction over all archs, or raise NotUnderstoodError."""
        text = self._source("dispatch", direction, f"dispatch of {direction}")
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

    def _source(self, role: str, direction: str, missing: str, ending: str = "") -> str:
        """Return the text of a source for all archs; `missing` names it in errors."""
        # CK's file names are not the directions'.
        files = (
            source.file
            for source in self.planned.sources
            if (source.role, source.direction, source.archs) == (role, direction, self.plan.archs)
            and source.file.endswith(ending)
        )
        return self._text(next(files, f"{self.module}/{missing}"))

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
