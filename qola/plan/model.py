"""The plan: what one manifest builds from one AITER tree, down to the last file and flag.

plan.json is the only thing that crosses from Python to Bazel. Attributes of these classes are its
keys, and docs/reference/plan.md says what each of them holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from qola.codegen.types import CodeObject, Direction, FieldValue
from qola.errors import Finding, PlanError, unseen
from qola.fetch.pins import PatchPin
from qola.json_types import WrongValueError, reader
from qola.manifest.archs import MAX_ARCHS
from qola.version import __version__

SCHEMA_VERSION = 4
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
    headers: str
    entry: str

    @property
    def source(self) -> str:
        """Path of its source in the manifest's repository."""
        return f"{self.module}/kernels/{self.name}.cpp"


@dataclass(frozen=True)
class PlannedBatch:
    """Kernel instances of a package that are compiled together."""

    name: str
    package: str
    kernels: tuple[int, ...]
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
    """A function that leaves a library.

    Attributes:
        required: names of its parameters that have no default.
        optional: names of those that follow, which have one.
    """

    name: str
    parameters: int
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedModule:
    """A library of kernel instances."""

    name: str
    library: str
    entries: tuple[EntryPoint, ...]
    entry_source: PlannedFile
    kernel_names: PlannedFile
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


@dataclass(frozen=True)
class PythonModule:
    """A module that Python imports, or whose C functions it calls; without PyTorch.

    Attributes:
        symbol: the one that leaves it; "" where all of AITER's C functions do.
        generated: as of a torch module.
    """

    name: str
    library: str
    symbol: str
    copts: tuple[str, ...]
    sources: tuple[PlannedFile, ...]
    include_dirs: tuple[str, ...]
    headers: tuple[str, ...]
    generated: tuple[PlannedFile, ...]
    code_objects: tuple[CodeObject, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class KernelFlags:
    """How flags of a torch module's kernel instances compare with those of the library.

    Attributes:
        package: where the kernel instances are.
        only_module: flags that AITER has for the module alone.
        only_library: those it has for the library alone.
        same_objects: none of them changes a kernel instance, so that the library's are linked.
    """

    package: str
    library: str
    only_module: tuple[str, ...]
    only_library: tuple[str, ...]
    same_objects: bool


@dataclass(frozen=True)
class TorchModule:
    """A module that Python imports beside PyTorch; those of attention have kernel instances.

    Attributes:
        entry: AITER's entry for it, and `name` but for what a variant became.
        generated: what its sources include of generated files; by path below their folder.
        host_only: names of its sources without device code.
        init: names of those that define the module's function for Python.
    """

    name: str
    entry: str
    library: str
    symbol: str
    receipt: int | None
    copts: tuple[str, ...]
    kernels: tuple[int, ...]
    kernel_flags: tuple[KernelFlags, ...]
    sources: tuple[PlannedSource, ...]
    host_only: tuple[str, ...]
    init: tuple[str, ...]
    headers: str
    code_objects: tuple[CodeObject, ...]
    asm_tables: tuple[PlannedFile, ...]
    entry_sources: tuple[PlannedFile, ...]
    directions: tuple[Direction, ...]
    generated: tuple[PlannedFile, ...]


@dataclass(frozen=True)
class TritonInstance:
    """A compile of a kernel in Triton."""

    name: str
    arch: str
    choices: Mapping[str, str]


@dataclass(frozen=True)
class TritonKernel:
    """A kernel in Triton, and what it is compiled for.

    Attributes:
        own: its files are qola's, in its package qola/triton, not the repository's.
        files: the one that has the function, then those it imports.
    """

    name: str
    function: str
    own: bool
    files: tuple[PlannedFile, ...]
    archs: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    time_limit: int
    instances: tuple[TritonInstance, ...]


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
    batches: tuple[PlannedBatch, ...]
    torch_modules: tuple[TorchModule, ...]
    triton: tuple[TritonKernel, ...] = ()
    qola: str = __version__

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read plan.json; keys that this qola does not know are passed over.

        Raises:
            PlanError: another schema version, a value that is none of its type, or a name or a
                path that would lead readers elsewhere.
        """
        try:
            data = json.loads(text)
            schema = data.get("schema") if isinstance(data, dict) else None
            if schema != SCHEMA_VERSION:
                found = f"plan.json has schema {schema!r}"
                raise WrongValueError(f"{found}; this qola reads {SCHEMA_VERSION}")
            plan: Plan = reader(Plan)(data)
            check_plan(plan)
        except (ValueError, RecursionError) as error:
            # Python's own words for it differ between versions.
            deep = isinstance(error, RecursionError)
            raise PlanError(
                Finding(
                    "plan.json",
                    "values too deep within each other" if deep else str(error),
                    "a plan that this qola has written",
                    "bazel fetch --force plans anew",
                )
            ) from None
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
        return _named(self.modules, name)

    @property
    def with_kernels(self) -> tuple[PlannedModule | TorchModule, ...]:
        """Return the libraries and the torch modules."""
        return (*self.modules, *self.torch_modules)

    def header_set(self, name: str) -> HeaderSet:
        """Return the header set of that name."""
        return _named(self.header_sets, name)

    def compiled_as(self, module: PlannedModule | TorchModule) -> list[str]:
        """Return, for each kernel instance of a module, the name of its batch, else its own."""
        batch = {index: batch.name for batch in self.batches for index in batch.kernels}
        return [batch.get(index, self.kernels[index].name) for index in module.kernels]

    def kernels_of(self, module: PlannedModule | TorchModule) -> list[PlannedKernel]:
        """Return the kernel instances of a module, in its order."""
        return [self.kernels[index] for index in module.kernels]


_T = TypeVar("_T", PlannedModule, HeaderSet)


def _named(items: Iterable[_T], name: str) -> _T:
    """Return the one of that name.

    Raises:
        PlanError: there is none.
    """
    for item in items:
        if item.name == name:
            return item
    raise PlanError(Finding("plan.json", f"nothing of the name {name}", "what the plan speaks of"))


_PARTS = re.compile(r"(?:(?!\.\.?(?:/|$))[^/]{1,255}(?:/|$))+(?<!/)")


def check_plan(plan: Plan) -> None:
    """Refuse names and paths that lead out of the directories that readers write to and read in.

    Raises:
        WrongValueError: there is one, or an index without its kernel instance.
    """
    files = [*plan.inputs, *plan.configs, *plan.licenses, *plan.packages]
    names = [plan.namespace] if plan.namespace else []
    texts = [plan.name, *plan.archs, *plan.packages]
    for package in plan.packages.values():
        texts += (*package.copts, package.headers)
    for headers in plan.header_sets:
        files += headers.files
        texts += (headers.name, *headers.include_dirs)
    for kernel in plan.kernels:
        files += (kernel.name, kernel.package, kernel.module)
        texts += kernel.archs
        files += filter(None, (kernel.entry,))
    for batch in plan.batches:
        files += (batch.name, batch.package, batch.file)
        if not all(0 <= index < len(plan.kernels) for index in batch.kernels):
            raise WrongValueError(f"an index in {batch.name} without its kernel instance")
        if {plan.kernels[index].package for index in batch.kernels} != {batch.package}:
            raise WrongValueError(f"kernel instances of another package in {batch.name}, or none")
    batched = [index for batch in plan.batches for index in batch.kernels]
    if len(set(batched)) != len(batched):
        raise WrongValueError("a kernel instance in two batches")
    for module in plan.modules:
        files += (module.name, module.library, module.entry_source.file, module.public_header.file)
        files.append(module.kernel_names.file)
        names += [entry.name for entry in module.entries]
        names += module.macros
        texts += (*module.macros.values(), *module.copts)
        plain = (*module.asm_tables, *module.stubs, *module.entry_sources)
        files += [item.file for item in plain]
        files += [item.file for item in module.sources]
        files += [item.file for item in module.code_objects]
        files += [item.name for item in module.entry_sources]
        if not all(0 <= index < len(plan.kernels) for index in module.kernels):
            raise WrongValueError(f"an index in {module.name} without its kernel instance")
        if not all(found.arch in plan.archs for found in module.code_objects):
            raise WrongValueError(f"a code object of {module.name} for an arch beside the plan's")
    for torch in plan.torch_modules:
        files += (torch.name, torch.entry, torch.library)
        names += [torch.symbol]
        texts += torch.copts
        plain = (*torch.asm_tables, *torch.entry_sources, *torch.generated)
        files += [item.file for item in plain]
        files += [item.file for item in torch.sources]
        files += [item.file for item in torch.code_objects]
        if not all(0 <= index < len(plan.kernels) for index in torch.kernels):
            raise WrongValueError(f"an index in {torch.name} without its kernel instance")
        if not all(found.arch in plan.archs for found in torch.code_objects):
            raise WrongValueError(f"a code object of {torch.name} for an arch beside the plan's")
    for python in plan.python_modules:
        files += (python.name, python.library, *(source.file for source in python.sources))
        files += [item.file for item in python.generated]
        files += [item.file for item in python.code_objects]
        names += filter(None, (python.symbol,))
        if not all(found.arch in plan.archs for found in python.code_objects):
            raise WrongValueError(f"a code object of {python.name} for an arch beside the plan's")
        texts += (*python.copts, *python.include_dirs)
    for triton in plan.triton:
        files += (triton.name, *(file.file for file in triton.files))
        files += [instance.name for instance in triton.instances]
        names += [triton.function]
        texts += [*triton.choices, *(v for values in triton.choices.values() for v in values)]
        if not triton.files:
            raise WrongValueError(f"{triton.name}, a kernel without a file")
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise WrongValueError(f"{name[:200]}, no name of C++")
    for text in texts:
        if unseen(text):
            raise WrongValueError(f"{text[:200]}, which has control characters")
    for file in files:
        if not _PARTS.fullmatch(file) or unseen(file):
            raise WrongValueError(f"{file[:200]}, no name or path below a directory")
    if len(plan.archs) > MAX_ARCHS:
        raise WrongValueError(f"{len(plan.archs)} archs, more than {MAX_ARCHS}")


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join("    " + _compact(item) for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    # vars, not asdict: a copy of 20,000 kernel instances takes seconds.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=vars)
