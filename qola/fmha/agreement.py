"""Compares the launches of a library with its parsed dispatch, and with its `find`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from qola.attention import AttentionProblem, Device
from qola.fmha.registry import Registry, RegistryError
from qola.verify.c_api import Found
from qola.verify.case import REFUSED, Call, Dim, Sample
from qola.verify.host import Built, Host, on_device

#: The launches for a problem, the answer of `find`, and the names in it.
_Answer = tuple[Call, Found, tuple[str, ...]]


@dataclass(frozen=True)
class Compared:
    """A problem, with the kernels it was launched with and those it should be.

    Attributes:
        selected: kernels that the registry says it goes to.
        launched: those that the library's host code launched.
        grids: of these launches, in workgroups.
        found: those that the library's C function `find` names.
        error: why nothing was launched, in the words of the entry point.
        unread: why the dispatch names no kernels that could be compared, else empty.
        unfound: why `find` names none, in its words.
        unasked: why `find` does not take the problem, else empty.
    """

    problem: AttentionProblem
    arch: str
    selected: tuple[str, ...]
    launched: tuple[str, ...]
    grids: tuple[Dim, ...]
    found: tuple[str, ...] = ()
    error: str = ""
    unread: str = ""
    unfound: str = ""
    unasked: str = ""

    @property
    def as_selected(self) -> bool | None:
        """Whether launches and dispatch agree; None if the dispatch is unknown."""
        return None if self.unread else self._served and self.selected == self.launched

    @property
    def as_found(self) -> bool | None:
        """Whether launches and `find` agree; None if `find` does not take the problem."""
        if self.unasked:
            return None
        return self._served and not self.unfound and self.found == self.launched

    @property
    def agrees(self) -> bool | None:
        """Whether launches agree with both; None if compared with neither."""
        known = [one for one in (self.as_selected, self.as_found) if one is not None]
        return all(known) if known else None

    @property
    def _served(self) -> bool:
        """Whether kernels were launched, or the library has none for the problem."""
        return bool(self.launched) or self.error.endswith(REFUSED)

    def line(self) -> str:
        """Return the problem with its kernels and grids, or the differences."""
        if self.agrees is False:
            said = [("launched", self.launched, self.error)]
            if self.as_selected is False:
                said.append(("selected", self.selected, ""))
            if self.as_found is False:
                said.append(("find names", self.found, self.unfound))
            words = (f"{w} {_shown(names)}" + (f" ({e})" if e else "") for w, names, e in said)
            return f"{self.problem}: {'; '.join(words)}"
        if not self.launched:
            return f"{self.problem} -> none: {self.error or self.unread}"
        grids = ("x".join(map(str, grid)) for grid in self.grids)
        pairs = (f"{n} {grid}" for n, grid in zip(self.launched, grids, strict=True))
        return f"{self.problem} -> {', '.join(pairs)}"

    def to_json(self) -> str:
        """Return all of it as a line."""
        values = {**vars(self), "problem": self.problem.to_fields()}
        return json.dumps({**values, "agrees": self.agrees}, sort_keys=True)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def compared(built: Built, arch: str, problems: Sequence[AttentionProblem]) -> list[Compared]:
    """Call a library with problems on a device that runs nothing, and compare the launches.

    Of a direction whose dispatch is not understood, and of a problem that assembly kernels serve,
    the result has the launches, why no kernel is selected, and whether `find` agrees.

    Raises:
        VerifyError: the process that called the library died.
    """
    registry = Registry.of(built.module, built.repository)
    answers = on_device(built, Device(arch), _answers, problems)
    return list(_compared(registry, arch, answers))


def _answers(host: Host, problems: Sequence[AttentionProblem]) -> list[_Answer]:
    answers = []
    for problem in problems:
        call, found = host.call(Sample(problem)), host.find(problem)
        answers.append((call, found, host.named(found, call.launches)))
    return answers


def _compared(registry: Registry, arch: str, answers: Sequence[_Answer]) -> Iterator[Compared]:
    known = {entry.name for entry in registry}
    for call, found, names in answers:
        selected: tuple[str, ...] = ()
        unread = ""
        if call.problem.use_asm and not known.issuperset(call.names):
            unread = "assembly kernels serve it, which AITER's host code chooses"
        else:
            # CK's dispatch serves a problem that assembly kernels refuse.
            plain = replace(call.problem, use_asm=False)
            try:
                selected = tuple(entry.name for entry in registry.select(plain, arch))
            except RegistryError as error:
                unread = "; ".join(finding.found for finding in error.findings)
        yield Compared(
            call.problem,
            arch,
            selected,
            call.names,
            tuple(launch.grid for launch in call.launches),
            names,
            error=call.error,
            unread=unread,
            unfound="" if found.answers or found.refuses else found.error,
            # Both are none where the C++ function has no kernel either.
            unasked=found.error if found.refuses and not call.error.endswith(REFUSED) else "",
        )
