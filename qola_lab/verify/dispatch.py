"""Which kernel instance a problem goes to, read from the C++ of a dispatch.

A dispatch is conditions within each other: arch, data type, head dimensions, then one row after
the other, of which the first that fits names the traits types of the kernels it launches. They
are evaluated unchanged. One that cannot be evaluated is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Literal

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
from qola_base.errors import CodegenError
from qola_base.json_types import Scalar
from qola_lab.problems import AttentionProblem
from qola_lab.problems.ck import traits_of
from qola_lab.verify.values import dispatch_arguments

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
