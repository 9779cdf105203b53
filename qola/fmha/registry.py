"""Lists the kernels of libraries, and selects the kernel of a problem."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qola.attention import AttentionProblem
from qola.codegen.ck.link import NotUnderstoodError
from qola.errors import ExitCode, Finding, QolaError
from qola.json_types import WrongValueError, parse_json, reader
from qola.kernel.config import KernelConfig
from qola.verify.dispatch import Dispatch
from qola.verify.repository import Repository, is_asm_helper


class RegistryError(QolaError):
    """A question that a registry has no answer to, or registries that do not go together."""

    exit_code = ExitCode.USAGE
    default_title = "the registry cannot say"


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
    """Kernels by their library, name and config.

    Attributes:
        entries: sorted by library and name.
    """

    def __init__(
        self, entries: Iterable[Entry] = (), sources: Mapping[str, Repository] | None = None
    ) -> None:
        """Make a registry of kernels without a dispatch. `Registry.of` adds that of a library.

        Raises:
            RegistryError: two kernels of a library have the same name or the same config.
        """
        self._sources = dict(sources or {})
        self._dispatches: dict[tuple[str, str], Dispatch] = {}
        self.entries = tuple(sorted(entries))
        self._by_name: dict[tuple[str, str], Entry] = {}
        self._by_config: dict[tuple[str, KernelConfig], Entry] = {}
        wrong = []
        for one in self.entries:
            same = self._by_name.setdefault((one.library, one.name), one)
            other = self._by_config.setdefault((one.library, one.config), one)
            if same is not one or other is not one:
                place = f"{one.library} {one.name}"
                wrong.append(
                    Finding(place, f"also {other.name}", "one kernel of a name and config")
                )
        if wrong:
            raise RegistryError(wrong)

    @staticmethod
    def of(module: str, repository: Path) -> Registry:
        """Return the kernels of CK that a module's library has, with its dispatch.

        Args:
            module: libmha_fwd or libmha_bwd.
            repository: a manifest's: the directory that holds plan.json.

        Raises:
            VerifyError: the directory is none of a manifest.
            ConfigError: a kernel of the plan is none of CK's attention.
        """
        source = Repository(module, repository)
        library = source.planned.library
        entries = [
            Entry(library, k.name, k.archs, KernelConfig.from_fields(k.direction, k.role, k.fields))
            for k in source.kernels
            if not is_asm_helper(k)
        ]
        return Registry(entries, {library: source})

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def merged(self, *others: Registry) -> Registry:
        """Return a registry with the kernels of all, each once.

        Raises:
            RegistryError: two have a kernel of the same library and name that is not the same.
        """
        found: dict[tuple[str, str], Entry] = {}
        sources: dict[str, Repository] = {}
        wrong = []
        for registry in (self, *others):
            sources = registry._sources | sources
            for one in registry.entries:
                same = found.setdefault((one.library, one.name), one)
                if (same.archs, same.config) != (one.archs, one.config):
                    place = f"{one.library} {one.name}"
                    wrong.append(
                        Finding(place, "another config, or other archs", "the same of all")
                    )
        if wrong:
            raise RegistryError(wrong)
        return Registry(found.values(), sources)

    def where(self, **values: Any) -> list[Entry]:
        """Return the kernels whose configs have these values.

        Args:
            values: by fields of KernelConfig: a value, a tuple of values, or a text with * and ?.

        Raises:
            RegistryError: a config does not have the field.
        """
        unknown = sorted(set(values) - set(KernelConfig.__dataclass_fields__))
        if unknown:
            known = ", ".join(KernelConfig.__dataclass_fields__)
            raise RegistryError([Finding(n, "not a field of a config", known) for n in unknown])
        return [
            entry
            for entry in self.entries
            if all(_matches(getattr(entry.config, name), value) for name, value in values.items())
        ]

    def named(self, name: str, library: str = "") -> Entry:
        """Return the kernel of a name.

        Raises:
            RegistryError: there is none, or there are several.
        """
        found = [one for one in self.entries if one.name == name and library in ("", one.library)]
        return _only(found, name)

    def of_config(self, config: KernelConfig, library: str = "") -> Entry:
        """Return the kernel of a config.

        Raises:
            RegistryError: there is none, or there are several.
        """
        keys = [library] if library else sorted({one.library for one in self.entries})
        found = [self._by_config[key, config] for key in keys if (key, config) in self._by_config]
        return _only(found, config.name)

    def select(self, problem: AttentionProblem, arch: str, library: str = "") -> tuple[Entry, ...]:
        """Return the kernels that a problem is launched with, () where the library has none.

        The conditions of the library's dispatch are evaluated as they are compiled. AITER's host
        code decides whether and which assembly kernel serves a problem: for these use the
        library's C function `find` or `qola dispatch`.

        Args:
            arch: of the device.
            library: file name, where several have the problem's direction.

        Raises:
            RegistryError: no dispatch is at hand, or it is not understood; or assembly kernels of
                the library may serve the problem.
        """
        rows = self._ask(problem, arch, library, lambda of: [of.taken(problem, arch)])
        return rows[0]

    def query(
        self, problem: AttentionProblem, arch: str, library: str = ""
    ) -> list[tuple[Entry, ...]]:
        """Return all that would serve a problem, in the order of the dispatch; see `select`."""
        return self._ask(problem, arch, library, lambda of: of.fitting(problem, arch))

    def _ask(
        self,
        problem: AttentionProblem,
        arch: str,
        library: str,
        ask: Callable[[Dispatch], Iterable[Sequence[str]]],
    ) -> list[tuple[Entry, ...]]:
        place = str(problem)
        having = [
            name
            for name, source in self._sources.items()
            if library in ("", name) and source.of_direction(problem.direction)
        ]
        if len(having) != 1:
            words = f"dispatches of {problem.direction}: {', '.join(having) or 'none'}"
            fix = "name the library" if having else "make the registry with Registry.of"
            raise RegistryError(Finding(place, words, "one", fix))
        (name,) = having
        if problem.use_asm and self._sources[name].has_assembly(problem.direction, arch):
            words = "assembly kernels may serve it, which AITER's host code chooses"
            fix = "ask the library: its C function find, or qola dispatch"
            raise RegistryError(Finding(place, words, "assembly=False", fix))
        key = name, problem.direction
        try:
            if key not in self._dispatches:
                self._dispatches[key] = self._sources[name].dispatch(problem.direction)
            rows = ask(self._dispatches[key])
        except NotUnderstoodError as error:
            words = f"its dispatch is not understood: {error}"
            raise RegistryError(Finding(name, words, "one that qola can follow")) from None
        return [tuple(self._by_name[name, kernel] for kernel in row) for row in rows]

    def to_json(self) -> str:
        """Return the kernels, one a line; dispatches are not part of it."""
        lines = [
            json.dumps({**vars(one), "config": one.config.values()}, sort_keys=True)
            for one in self.entries
        ]
        return "[\n" + ",\n".join(lines) + "\n]\n"

    @staticmethod
    def from_json(text: str) -> Registry:
        """Return the registry of a text of `to_json`; `select` and `query` need a dispatch.

        Raises:
            RegistryError: it is none.
            ConfigError: a config in it is none.
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
        return any(_matches(value, one) for one in wanted)
    if isinstance(wanted, str):
        return value is not None and fnmatchcase(str(value), wanted)
    return bool(value == wanted)


def _only(found: Sequence[Entry], name: str) -> Entry:
    if len(found) != 1:
        words = f"in {', '.join(one.library for one in found)}" if found else "no such kernel"
        raise RegistryError(Finding(name, words, "a kernel of one library"))
    return found[0]
