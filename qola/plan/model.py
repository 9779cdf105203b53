"""The plan: what one manifest builds from one AITER tree, down to the last file and flag.

plan.json is the only thing that crosses from Python to Bazel; docs/reference/plan.md documents it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qola.codegen.types import CodeObject
from qola.errors import Finding
from qola.plan.python_module import PythonModule
from qola.version import __version__

SCHEMA_VERSION = 2
"""Raised with every change that an existing reader of plan.json would misread."""


@dataclass(frozen=True)
class HeaderSet:
    """The headers a group of compiles may read.

    Attributes:
        name: the direction, or bwd_asm for helpers of assembly kernels; the module for its sources.
            Where kernel instances of a direction include different headers, the union has this
            name, and what some of them include a name with a number.
        include_dirs: include directories in search order, relative to the tree.
        files: header files, relative to the tree, sorted.
    """

    name: str
    include_dirs: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class PlannedKernel:
    """One kernel instance.

    Attributes:
        name: CK's file name without its suffix; also the target's name.
        package: package of the kernel repository: direction (or bwd_asm), archs where one source
            serves several, and flag configuration.
        direction: fwd, fwd_splitkv, batch_prefill or bwd.
        role: which kernel of the direction, for example dq_dk_dv.
        archs: archs it is compiled for; more than one only for arch-neutral instances.
        sha256: digest of the source file.
        fields: what CK knows of it (dtype, hdim_q, mode, mask, ...).
        variants: indices of the variants that ask for it; empty when the receipt alone does.
        family: name of the family whose warm precompiled header it is compiled with; "" for none.
        headers: name of the header set with what it includes, and nothing else.
        entry: name of the entry source that makes a kernel library of it.
    """

    name: str
    package: str
    direction: str
    role: str
    archs: tuple[str, ...]
    sha256: str
    fields: Mapping[str, str | int | bool | None]
    variants: tuple[int, ...]
    family: str = ""
    headers: str = ""
    entry: str = ""


@dataclass(frozen=True)
class PlannedFamily:
    """Kernel instances of a package that share a warm precompiled header.

    Attributes:
        name: what they have in common.
        package: package of the kernel repository.
        sister: the kernel instance that the header is made of, planned or not.
        file: path of the header in the manifest's repository.
        sha256: digest of that file.
    """

    name: str
    package: str
    sister: str
    file: str
    sha256: str


@dataclass(frozen=True)
class PlannedSource:
    """A source that is not a kernel instance: dispatch or AITER's entry source.

    Attributes:
        name: target name without the module.
        file: path in the manifest's repository.
        direction: the direction it serves.
        role: dispatch, entry or asm.
        sha256: digest of the file.
        archs: the libraries it belongs to, those built for exactly these archs; () for any.
    """

    name: str
    file: str
    direction: str
    role: str
    sha256: str
    archs: tuple[str, ...]


@dataclass(frozen=True)
class LazySource:
    """A source of the lazy library or of kernel libraries; see `qola.plan.stubs`.

    Attributes:
        name: name of the stubs, which is that of their package without archs and flags, or of the
            entry source.
        file: path in the manifest's repository.
        sha256: digest of the file.
    """

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class EntryPoint:
    """A function that leaves a library.

    Attributes:
        name: its name in the manifest's namespace, as AITER's (mha_fwd).
        parameters: number of its parameters in this tree, which is its signature's name.
    """

    name: str
    parameters: int


@dataclass(frozen=True)
class PlannedModule:
    """One library.

    Attributes:
        name: the module, for example libmha_fwd.
        library: file name of the library.
        entries: the entry points, one for each direction the library serves.
        entry_source: C++ file of qola that defines them, without suffix.
        receipt: receipt the manifest names for it; None: the one AITER uses.
        copts: compiler flags of the module's optCompilerConfig.json entry.
        kernels: indices into Plan.kernels.
        sources: dispatch and entry sources.
        headers: name of the header set for the sources and for users.
        code_objects: embedded assembly (v3) kernels, by key; without any, the v3 path is off.
        stubs: sources that take the place of the kernel instances in the lazy library.
        entry_sources: sources that make kernel libraries of the kernel instances.
    """

    name: str
    library: str
    entries: tuple[EntryPoint, ...]
    entry_source: str
    receipt: int | None
    copts: tuple[str, ...]
    kernels: tuple[int, ...]
    sources: tuple[PlannedSource, ...]
    headers: str
    code_objects: tuple[CodeObject, ...]
    stubs: tuple[LazySource, ...] = ()
    entry_sources: tuple[LazySource, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything Bazel needs to know about one manifest.

    Attributes:
        name: name of the manifest.
        namespace: C++ namespace below qola, "" for none.
        archs: archs the libraries are built for.
        manifest: the manifest in canonical form.
        aiter: generation, version, pin and patches of the tree.
        packages: compiler flags and header set of each package of kernels.
        header_sets: the header sets, by name.
        kernels: kernel instances of all modules, sorted by package, in dispatch order.
        modules: the attention libraries.
        warnings: what a user should know although it builds.
        inputs: files of the tree the plan depends on, relative, sorted.
        configs: tuning data for a bundle, files of the tree, relative, sorted.
        licenses: license texts for a bundle, files of the tree, relative, sorted.
        python_modules: the modules that Python imports.
        families: kernel instances that share a warm precompiled header, by package and name.
    """

    name: str
    namespace: str
    archs: tuple[str, ...]
    manifest: Mapping[str, Any]
    aiter: Mapping[str, Any]
    packages: Mapping[str, KernelPackage]
    header_sets: tuple[HeaderSet, ...]
    kernels: tuple[PlannedKernel, ...]
    modules: tuple[PlannedModule, ...]
    warnings: tuple[Finding, ...]
    inputs: tuple[str, ...]
    configs: tuple[str, ...]
    licenses: tuple[str, ...]
    python_modules: tuple[PythonModule, ...] = ()
    families: tuple[PlannedFamily, ...] = ()


@dataclass(frozen=True)
class OverlayHeader:
    """A changed copy of one of the tree's headers.

    Attributes:
        name: the header as sources include it.
        file: path of the copy in the manifest's repository.
        sha256: digest of the copy.
    """

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class KernelPackage:
    """A package of the kernel repository: kernel instances that share flags and headers.

    They are of one direction, or bwd_asm: helpers that run before and after an assembly kernel.

    Attributes:
        copts: compiler flags.
        headers: name of the header set.
        precompile: its headers may be precompiled.
        overlay: headers that compiles with precompiled headers read in place of the tree's: path
            as sources include it, and digest; see `qola.plan.pch_workaround`.
    """

    copts: tuple[str, ...]
    headers: str
    precompile: bool = True
    overlay: tuple[OverlayHeader, ...] = ()


def to_json(plan: Plan, **more: Any) -> str:
    """The text of plan.json: sorted keys, one kernel, header or warning a line.

    A difference between two plans reads as a list of kernels in `diff`.

    Args:
        plan: the plan.
        more: further keys, for output that is a plan and something else.
    """
    data = {**vars(plan), "schema": SCHEMA_VERSION, "qola": __version__, **more}
    lines = [f"  {json.dumps(key)}: {_value(data[key])}" for key in sorted(data)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + ",\n".join("    " + _compact(item) for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    # vars, not asdict: a copy of 20,000 kernel instances takes seconds.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=vars)


def from_json(text: str) -> dict[str, Any]:
    """Reads plan.json as plain data, for readers such as the kernel repository.

    Raises:
        ValueError: another schema version.
    """
    data: dict[str, Any] = json.loads(text)
    if data.get("schema") != SCHEMA_VERSION:
        raise ValueError(
            f"plan.json has schema {data.get('schema')!r}; this qola reads {SCHEMA_VERSION}"
        )
    return data
