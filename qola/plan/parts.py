"""What a plan is made of: kernel instances, batches, libraries and modules.

Attributes of these classes are keys of plan.json (docs/reference/plan.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qola.codegen.types import CodeObject, Direction, FieldValue
from qola.fetch.pins import PatchPin


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
    """A package: kernel instances that share flags and headers.

    They are of one direction, or bwd_asm: helpers that run before and after an assembly kernel.
    """

    copts: tuple[str, ...]
    headers: str


@dataclass(frozen=True)
class PythonModule:
    """A module that Python imports, or whose C functions it calls; without PyTorch.

    Attributes:
        symbol: the one that leaves it; "" where all of AITER's C functions do.
        rocm: ROCm's libraries beside HIP that it includes headers of, sorted.
        generated: as of a torch module.
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
        signature: types of parameters that the manifest says.
    """

    name: str
    function: str
    own: bool
    files: tuple[PlannedFile, ...]
    signature: Mapping[str, str]
    archs: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]
    timeout: int
    instances: tuple[TritonInstance, ...]
