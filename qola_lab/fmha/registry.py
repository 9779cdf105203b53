"""Lists the kernels of a library, and selects the kernel of a problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qola.codegen.ck.link import NotUnderstoodError
from qola.kernel.config import KernelConfig
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.json_types import WrongValueError, parse_json, reader
from qola_lab.problems import AttentionProblem
from qola_lab.verify.repository import Dispatch, Repository, is_asm_helper


class RegistryError(QolaError, title="the registry cannot say", exit_code=ExitCode.USAGE):
    """A registry cannot answer, or a text is not a registry."""


@dataclass(frozen=True, order=True)
class Entry:
    """A kernel of a library.

    Attributes:
        library: its file's name.
        name: CK's name of the kernel.
        archs: those that the library has it for.
    """

    library: str
    name: str
    archs: tuple[str, ...]
    config: KernelConfig = field(compare=False)


@dataclass(frozen=True)
class _EntryText:
    """An entry in JSON: its config is an object that KernelConfig reads."""

    library: str
    name: str
    archs: tuple[str, ...]
    config: Mapping[str, Any]


class Registry:
    """The kernels of a library by name and config.

    Attributes:
        entries: sorted by name.
    """

    def __init__(self, entries: Iterable[Entry] = (), source: Repository | None = None) -> None:
        """Make a registry; without a source its dispatch is unknown.

        Raises:
            RegistryError: two kernels have one name or one config.
        """
        self._source = source
        self._dispatches: dict[str, Dispatch] = {}
        self.entries = tuple(sorted(entries))
        self._by_name: dict[str, Entry] = {}
        by_config: dict[KernelConfig, Entry] = {}
        wrong = []
        for entry in self.entries:
            same = self._by_name.setdefault(entry.name, entry)
            other = by_config.setdefault(entry.config, entry)
            if same is not entry or other is not entry:
                place, found = f"{entry.library} {entry.name}", f"also {other.name}"
                wrong.append(Finding(place, found, "one kernel of a name and config"))
        if wrong:
            raise RegistryError(wrong)

    @staticmethod
    def of(module: str, repository: Path) -> Registry:
        """Return the kernels of CK in a module's library, with its dispatch.

        Args:
            module: libmha_fwd or libmha_bwd.
            repository: a manifest's: the directory that holds plan.json.

        Raises:
            VerifyError: the directory is not a manifest's repository.
            ConfigError: a kernel of the plan is not one of CK's attention.
        """
        source = Repository(module, repository)
        library = source.planned.library
        entries = [
            Entry(library, k.name, k.archs, k.config)
            for k in source.kernels
            if not is_asm_helper(k)
        ]
        return Registry(entries, source)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def where(self, **values: Any) -> list[Entry]:
        """Return the kernels whose configs have these values.

        Args:
            values: by fields of KernelConfig: a value, a tuple of values, or a text with * and ?.

        Raises:
            RegistryError: a config does not have the field.
        """
        fields = KernelConfig.__dataclass_fields__
        if unknown := sorted(set(values) - set(fields)):
            known = ", ".join(fields)
            raise RegistryError(Finding(n, "not a field of a config", known) for n in unknown)
        return [
            entry
            for entry in self.entries
            if all(_matches(getattr(entry.config, name), value) for name, value in values.items())
        ]

    def named(self, name: str) -> Entry:
        """Return the kernel of a name.

        Raises:
            RegistryError: the registry has none of this name.
        """
        if name not in self._by_name:
            raise RegistryError(Finding(name, "no such kernel", "a name of the registry"))
        return self._by_name[name]

    def select(self, problem: AttentionProblem, arch: str) -> tuple[Entry, ...]:
        """Return the kernels that a problem is launched with, () if the library has none.

        The conditions of the library's dispatch are evaluated as they are compiled. AITER's host
        code decides whether and which assembly kernel serves a problem: for these use the
        library's C function `find` or `qola dispatch`.

        Raises:
            RegistryError: the dispatch is unknown or not understood, or assembly kernels of the
                library may serve the problem.
        """
        return self._ask(problem, arch, lambda dispatch: [dispatch.taken(problem, arch)])[0]

    def query(self, problem: AttentionProblem, arch: str) -> list[tuple[Entry, ...]]:
        """Return all kernels that would serve a problem, in the dispatch's order; see `select`."""
        return self._ask(problem, arch, lambda dispatch: dispatch.fitting(problem, arch))

    def dispatch(self, direction: str) -> Dispatch:
        """Return the dispatch of a direction, which is read once; the registry has a source.

        Raises:
            NotUnderstoodError: it has an unknown form.
        """
        assert self._source is not None
        if direction not in self._dispatches:
            self._dispatches[direction] = self._source.dispatch(direction)
        return self._dispatches[direction]

    def _ask(
        self,
        problem: AttentionProblem,
        arch: str,
        ask: Callable[[Dispatch], Iterable[Sequence[str]]],
    ) -> list[tuple[Entry, ...]]:
        place, direction, source = str(problem), problem.direction, self._source
        if source is None or not source.of_direction(direction):
            found, fix = f"no dispatch of {direction}", "make the registry with Registry.of"
            raise RegistryError(Finding(place, found, "a library with kernels for it", fix))
        if problem.use_asm and source.has_assembly(direction, arch):
            found = "assembly kernels may serve it, which AITER's host code chooses"
            fix = "ask the library: its C function find, or qola dispatch"
            raise RegistryError(Finding(place, found, "use_asm=False", fix))
        try:
            rows = ask(self.dispatch(direction))
        except NotUnderstoodError as error:
            found = f"its dispatch is not understood: {error}"
            expected = "one that qola can follow"
            raise RegistryError(Finding(source.planned.library, found, expected)) from None
        return [tuple(map(self._by_name.__getitem__, row)) for row in rows]

    def to_json(self) -> str:
        """Return the kernels as JSON, one per line, without their dispatches."""
        lines = [
            json.dumps({**vars(entry), "config": entry.config.values()}, sort_keys=True)
            for entry in self.entries
        ]
        return "[\n" + ",\n".join(lines) + "\n]\n"

    @staticmethod
    def from_json(text: str) -> Registry:
        """Return the registry of a text of `to_json`; `select` and `query` need a dispatch.

        Raises:
            RegistryError: the text is not a registry.
            ConfigError: a config in it is not valid.
        """
        try:
            lines = reader(tuple[_EntryText, ...])(parse_json(text))
        except WrongValueError as error:
            found = str(error).removeprefix(": ")
            raise RegistryError(Finding("JSON", found, "a text of Registry.to_json")) from None
        return Registry(
            Entry(line.library, line.name, line.archs, KernelConfig.from_values(line.config))
            for line in lines
        )


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return any(_matches(value, choice) for choice in wanted)
    if isinstance(wanted, str):
        return value is not None and fnmatchcase(str(value), wanted)
    return bool(value == wanted)
