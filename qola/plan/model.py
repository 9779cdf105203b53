"""The plan: what one manifest builds from one AITER tree, down to the last file and flag.

plan.json is the only thing that crosses from Python to Bazel. Attributes of these classes are its
keys, and docs/reference/plan.md says what each of them holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from qola.codegen.types import CodeObject, Direction, FieldValue
from qola.errors import Finding
from qola.fetch.pins import PatchPin
from qola.version import __version__

SCHEMA_VERSION = 3
"""Raised with every change that an existing reader of plan.json would misread."""


@dataclass(frozen=True)
class PlannedFile:
    """A file of the manifest's repository."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class PlannedAiter:
    """The AITER tree."""

    generation: str
    id: str
    version: str
    patches: tuple[PatchPin, ...]


@dataclass(frozen=True)
class HeaderSet:
    """The headers that a group of compiles may read."""

    name: str
    include_dirs: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel instance."""

    name: str
    module: str
    package: str
    direction: str
    role: str
    archs: tuple[str, ...]
    sha256: str
    fields: Mapping[str, FieldValue]
    variants: tuple[int, ...]
    family: str
    headers: str
    entry: str

    @property
    def source(self) -> str:
        """Path of its source in the manifest's repository."""
        return f"{self.module}/kernels/{self.name}.cpp"


@dataclass(frozen=True)
class PlannedFamily:
    """Kernel instances of a package that share a warm precompiled header."""

    name: str
    package: str
    sister: str
    file: str
    sha256: str


@dataclass(frozen=True)
class PlannedSource:
    """A source that is not a kernel instance: dispatch or AITER's entry source."""

    name: str
    file: str
    direction: str
    role: str
    sha256: str
    archs: tuple[str, ...]


@dataclass(frozen=True)
class EntryPoint:
    """A function that leaves a library."""

    name: str
    parameters: int
    required: tuple[str, ...]


@dataclass(frozen=True)
class PlannedModule:
    """A library of kernel instances."""

    name: str
    library: str
    entries: tuple[EntryPoint, ...]
    entry_source: PlannedFile
    public_header: PlannedFile
    macros: Mapping[str, str]
    receipt: int | None
    copts: tuple[str, ...]
    kernels: tuple[int, ...]
    sources: tuple[PlannedSource, ...]
    headers: str
    code_objects: tuple[CodeObject, ...]
    asm_tables: tuple[PlannedFile, ...]
    stubs: tuple[PlannedFile, ...]
    entry_sources: tuple[PlannedFile, ...]
    directions: tuple[Direction, ...]


@dataclass(frozen=True)
class KernelPackage:
    """A package of the kernel repository: kernel instances that share flags and headers.

    They are of one direction, or bwd_asm: helpers that run before and after an assembly kernel.
    """

    copts: tuple[str, ...]
    headers: str
    precompile: bool
    overlay: tuple[PlannedFile, ...]


@dataclass(frozen=True)
class PythonModule:
    """A module that Python imports."""

    name: str
    library: str
    symbol: str
    copts: tuple[str, ...]
    sources: tuple[PlannedFile, ...]
    include_dirs: tuple[str, ...]
    headers: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Everything Bazel needs to know about one manifest."""

    name: str
    namespace: str
    archs: tuple[str, ...]
    manifest: Mapping[str, Any]
    aiter: PlannedAiter
    packages: Mapping[str, KernelPackage]
    header_sets: tuple[HeaderSet, ...]
    kernels: tuple[PlannedKernel, ...]
    modules: tuple[PlannedModule, ...]
    warnings: tuple[Finding, ...]
    inputs: tuple[str, ...]
    configs: tuple[str, ...]
    licenses: tuple[str, ...]
    python_modules: tuple[PythonModule, ...]
    families: tuple[PlannedFamily, ...]
    qola: str = __version__

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read plan.json; keys that this qola does not know are passed over.

        Raises:
            ValueError: another schema version.
        """
        data = json.loads(text)
        if data.get("schema") != SCHEMA_VERSION:
            raise ValueError(
                f"plan.json has schema {data.get('schema')!r}; this qola reads {SCHEMA_VERSION}"
            )
        plan: Plan = _reader(Plan)(data)
        return plan

    def to_json(self, **more: Any) -> str:
        """Return the text of plan.json: sorted keys, one kernel, header or warning a line.

        A difference between two plans reads as a list of kernels in `diff`.

        Args:
            more: further keys, for output that is a plan and something else.
        """
        data = {**vars(self), "schema": SCHEMA_VERSION, **more}
        lines = [f"  {json.dumps(key)}: {_value(data[key])}" for key in sorted(data)]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def module(self, name: str) -> PlannedModule:
        """Return the module of that name."""
        return next(module for module in self.modules if module.name == name)

    def header_set(self, name: str) -> HeaderSet:
        """Return the header set of that name."""
        return next(headers for headers in self.header_sets if headers.name == name)

    def kernels_of(self, module: PlannedModule) -> list[PlannedKernel]:
        """Return the kernel instances of a module, in its order."""
        return [self.kernels[index] for index in module.kernels]


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that makes of JSON's values those of a type of the plan.

    Made once for each type: a plan has 20,000 kernel instances.
    """
    parts = get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        readers = {name: _reader(part) for name, part in get_type_hints(hint).items()}
        return lambda data: hint(**{name: read(data[name]) for name, read in readers.items()})
    if get_origin(hint) is tuple:
        read = _reader(parts[0])
        return lambda items: tuple(map(read, items))
    if get_origin(hint) is Mapping and isinstance(parts[1], type):
        read = _reader(parts[1])
        return lambda items: {key: read(item) for key, item in items.items()}
    return lambda value: value


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join("    " + _compact(item) for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    # vars, not asdict: a copy of 20,000 kernel instances takes seconds.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=vars)
