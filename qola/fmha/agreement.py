"""Whether a library launches what its dispatch is read to launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qola.fmha.problem import Problem
from qola.fmha.registry import Registry, RegistryError
from qola.verify.case import REFUSED, Call, Dim
from qola.verify.run import Built, called


@dataclass(frozen=True)
class Compared:
    """A problem, and what became of it.

    Attributes:
        selected: kernels that the registry says it goes to.
        launched: those that the library's host code launched.
        grids: of these launches, in workgroups.
        error: why nothing was launched, in the words of the entry point.
        unread: why it is not known what should be; empty where it is.
    """

    problem: Problem
    arch: str
    selected: tuple[str, ...]
    launched: tuple[str, ...]
    grids: tuple[Dim, ...]
    error: str = ""
    unread: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether both have the same kernels, or both none; None where that is not known."""
        if self.unread:
            return None
        served = bool(self.launched) or self.error.endswith(REFUSED)
        return served and self.selected == self.launched

    def line(self) -> str:
        """Return the problem and its main kernel with its grid, or what differs."""
        if self.agrees is False:
            have = (", ".join(names) or "none" for names in (self.launched, self.selected))
            more = f" ({self.error})" if self.error else ""
            return "{}: launched {}; selected {}{}".format(self.problem, *have, more)
        if not self.launched:
            return f"{self.problem} -> none: {self.error or self.unread}"
        grids = ("x".join(map(str, grid)) for grid in self.grids)
        pairs = (f"{n} {grid}" for n, grid in zip(self.launched, grids, strict=True))
        return f"{self.problem} -> {', '.join(pairs)}"

    def to_json(self) -> str:
        """Return all of it as a line."""
        values = {**vars(self), "problem": json.loads(self.problem.to_json())}
        return json.dumps({**values, "agrees": self.agrees}, sort_keys=True)


def compared(built: Built, arch: str, problems: Sequence[Problem]) -> list[Compared]:
    """Hand a library problems, on a HIP runtime that runs nothing, and compare what it launches.

    Of a direction whose dispatch is not understood, and of a problem that assembly kernels serve,
    the result says what is launched, and why it is compared with nothing.

    Raises:
        VerifyError: the process that called the library died.
    """
    registry = Registry.of(built.module, built.repository)
    calls = called(built, arch, problems).calls
    return list(_compared(registry, arch, calls))


def _compared(registry: Registry, arch: str, calls: Sequence[Call]) -> Iterator[Compared]:
    known = {entry.name for entry in registry}
    for call in calls:
        selected: tuple[str, ...] = ()
        unread = ""
        if call.problem.assembly and not known.issuperset(call.names):
            unread = "assembly kernels serve it, which AITER's host code chooses"
        else:
            # What these refuse goes to CK's dispatch, as if they were not asked.
            asked = replace(call.problem, assembly=False)
            try:
                selected = tuple(entry.name for entry in registry.select(asked, arch))
            except RegistryError as error:
                unread = "; ".join(finding.found for finding in error.findings)
        grids = tuple(launch.grid for launch in call.launches)
        yield Compared(call.problem, arch, selected, call.names, grids, call.error, unread)
