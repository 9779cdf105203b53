"""The plan: what one manifest builds from one AITER tree, down to the last file and flag.

plan.json is the record of a plan that programs in Bazel's actions and reports read. The attributes
of these classes are its keys, and docs/reference/plan.md describes each key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qola.codegen.types import CodeObject, Direction, GeneratedSource, KernelInstance
from qola.common.folder import Folder
from qola.common.version import __version__
from qola.fetch.pins import PatchPin
from qola_base.errors import Finding, PlanError
from qola_base.json_types import WrongValueError, json_fields, parse_json, reader

__all__ = [
    "SCHEMA_VERSION",
    "EntryPoint",
    "GeneratedSource",
    "HeaderSet",
    "KernelInstance",
    "KernelUnit",
    "Plan",
    "PlannedAiter",
    "PlannedBatch",
    "PlannedFile",
    "PlannedModule",
    "PythonModule",
    "TorchModule",
    "TritonInstance",
    "TritonKernel",
]

SCHEMA_VERSION = 6
"""Increased with every change that an existing reader of plan.json would misread."""


@dataclass(frozen=True)
class PlannedFile:
    """A file of the manifest's repository."""

    name: str
    file: str
    sha256: str

    @staticmethod
    def write(folder: Folder, name: str, file: str, text: str) -> PlannedFile:
        """Write a file of the repository."""
        return PlannedFile(name, file, folder.write(file, text))


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
class PlannedBatch:
    """Kernel instances of a unit that are compiled together."""

    name: str
    kernels: tuple[int, ...]
    file: str
    sha256: str


@dataclass(frozen=True)
class KernelUnit:
    """Kernel instances of a module that are compiled with the same flags and headers.

    Attributes:
        name: ``<module>/<kernel group>``, the beginning of its targets' names. Ends in
            ``.<header set>`` if other kernel instances of the kernel group include other headers.
        kernel_group: the direction, bwd_asm for helper kernels of assembly kernels, or either with
            archs and a digest: equal names mean equal flags and include directories.
        headers: name of its header set.
        kernels: indices of its kernel instances.
        batches: those that are compiled together, by name; the others have a compile each.
    """

    name: str
    kernel_group: str
    copts: tuple[str, ...]
    headers: str
    kernels: tuple[int, ...]
    batches: tuple[PlannedBatch, ...] = ()

    @property
    def module(self) -> str:
        """Name of the module that has it."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class EntryPoint:
    """An exported function of a library; `optional` parameters have a default."""

    name: str
    parameters: int
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelModule:
    """A module with kernel instances."""

    name: str
    library: str
    receipt: int | None
    copts: tuple[str, ...]
    kernels: tuple[int, ...]
    sources: tuple[GeneratedSource, ...]
    headers: str
    code_objects: tuple[CodeObject, ...]
    asm_tables: tuple[PlannedFile, ...]
    entry_sources: tuple[PlannedFile, ...]
    directions: tuple[Direction, ...]


@dataclass(frozen=True)
class PlannedModule(KernelModule):
    """A C++ library."""

    entries: tuple[EntryPoint, ...]
    entry_source: PlannedFile
    kernel_names: PlannedFile
    public_header: PlannedFile
    macros: Mapping[str, str]
    stubs: tuple[PlannedFile, ...]


@dataclass(frozen=True)
class PythonModule:
    """A module without PyTorch that Python imports, or whose C functions Python calls.

    Attributes:
        call: the function of csrc/cpp_itfs with its arguments; "" for a module of AITER's
            optCompilerConfig.json.
    """

    name: str
    library: str
    symbol: str
    copts: tuple[str, ...]
    sources: tuple[PlannedFile, ...]
    include_dirs: tuple[str, ...]
    headers: tuple[str, ...]
    rocm: tuple[str, ...]
    generated: tuple[PlannedFile, ...]
    code_objects: tuple[CodeObject, ...]
    inputs: tuple[str, ...]
    source_copts: Mapping[str, tuple[str, ...]]
    batch_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    call: str = ""


@dataclass(frozen=True)
class TorchModule(KernelModule):
    """A module that uses PyTorch; only those of attention have kernel instances.

    Attributes:
        per_arch: its sources differ from arch to arch. Each is compiled for the one in its `archs`,
            and the module takes those of the current device's arch.
        with_torch: names of sources that include PyTorch's headers and whose flags do not change
            the meaning of these.
    """

    entry: str
    symbol: str
    host_only: tuple[str, ...]
    init: tuple[str, ...]
    generated: tuple[PlannedFile, ...]
    source_copts: Mapping[str, tuple[str, ...]]
    batch_files: Mapping[str, tuple[str, ...]]
    batch_headers: str
    per_arch: bool = False
    with_torch: tuple[str, ...] = ()


@dataclass(frozen=True)
class TritonInstance:
    """One compile of a kernel in Triton."""

    name: str
    arch: str
    choices: Mapping[str, str]


@dataclass(frozen=True)
class TritonKernel:
    """A kernel in Triton and its instances."""

    name: str
    function: str
    own: bool
    files: tuple[PlannedFile, ...]
    signature: Mapping[str, str]
    archs: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    timeout: int
    instances: tuple[TritonInstance, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that Bazel needs to know about one manifest."""

    name: str
    namespace: str
    archs: tuple[str, ...]
    manifest: Mapping[str, Any]
    aiter: PlannedAiter
    header_sets: tuple[HeaderSet, ...]
    kernels: tuple[KernelInstance, ...]
    units: tuple[KernelUnit, ...]
    modules: tuple[PlannedModule, ...]
    warnings: tuple[Finding, ...]
    inputs: tuple[str, ...]
    configs: tuple[str, ...]
    licenses: tuple[str, ...]
    python_modules: tuple[PythonModule, ...]
    torch_modules: tuple[TorchModule, ...]
    triton: tuple[TritonKernel, ...] = ()
    aiter_python: Mapping[str, str] = field(default_factory=dict)
    qola: str = __version__

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read plan.json; another schema or form is a PlanError, unknown keys are ignored."""
        try:
            data = parse_json(text)
            schema = data.get("schema") if isinstance(data, dict) else None
            if schema != SCHEMA_VERSION:
                found = f"plan.json has schema {schema!r}"
                raise WrongValueError(f"{found}; this qola reads {SCHEMA_VERSION}")
            plan: Plan = reader(Plan)(data)
        except WrongValueError as error:
            expected = "a plan that this version of qola wrote"
            fix = "bazel fetch --force makes a new plan"
            raise PlanError(Finding("plan.json", str(error), expected, fix)) from None
        return plan

    def to_json(self, **more: Any) -> str:
        """Return the text of plan.json: sorted keys, one kernel, header or warning a line.

        Args:
            more: further keys, for output that contains more than a plan.
        """
        data = {**json_fields(self), "schema": SCHEMA_VERSION, **more}
        lines = [f"  {json.dumps(key)}: {_value(data[key])}" for key in sorted(data)]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def module(self, name: str) -> PlannedModule:
        """Return the library with this name."""
        return {module.name: module for module in self.modules}[name]

    def header_set(self, name: str) -> HeaderSet:
        """Return the header set with this name."""
        return {headers.name: headers for headers in self.header_sets}[name]

    def further_names(self, module: str) -> list[str]:
        """Return the further names by which AITER's Python imports a module."""
        specs = self.manifest.get("modules", ())
        named = (spec.get("names", ()) for spec in specs if spec["name"] == module)
        return [name for names in named for name in names]

    @property
    def functions(self) -> tuple[PythonModule, ...]:
        """The libraries of AITER's second JIT."""
        return tuple(module for module in self.python_modules if module.call)

    @property
    def with_kernels(self) -> tuple[PlannedModule | TorchModule, ...]:
        """The libraries and the torch modules."""
        return (*self.modules, *self.torch_modules)

    def units_of(self, module: KernelModule) -> list[KernelUnit]:
        """Return the units of a module, by name."""
        return [unit for unit in self.units if unit.module == module.name]

    def unit_by_kernel(self, module: KernelModule) -> dict[int, KernelUnit]:
        """Return the unit of each kernel instance of a module, by its index."""
        return {index: unit for unit in self.units_of(module) for index in unit.kernels}

    def compiled_as(self, module: KernelModule) -> list[str]:
        """Return the batch of each kernel instance of a module, or its own name if it has none."""
        batches = (batch for unit in self.units_of(module) for batch in unit.batches)
        names = {index: batch.name for batch in batches for index in batch.kernels}
        return [names.get(index, self.kernels[index].name) for index in module.kernels]

    def kernels_of(self, module: KernelModule) -> list[KernelInstance]:
        """Return the kernel instances of a module, in its order."""
        return [self.kernels[index] for index in module.kernels]


def _value(value: Any, indent: str = "  ") -> str:
    if isinstance(value, (list, tuple)) and value:
        items = ",\n".join(f"{indent}  {_item(item, indent + '  ')}" for item in value)
        return f"[\n{items}\n{indent}]"
    return _compact(value)


def _item(item: Any, indent: str) -> str:
    """Return one line, but of a unit a line for each batch."""
    if not isinstance(item, KernelUnit):
        return _compact(item)
    fields = {**json_fields(item), "batches": None}
    head = _compact({name: value for name, value in fields.items() if name != "batches"})
    return f'{{"batches": {_value(item.batches, indent)}, {head.removeprefix("{")}'


def _compact(value: Any) -> str:
    # Not asdict: a copy of 20,000 kernel instances takes seconds.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=json_fields)
