"""manifest.json: the inputs and contents of a bundle (docs/guide/bundle.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypedDict
from urllib.parse import urlsplit, urlunsplit

from qola.common.layout import AITER_JIT, TRITON
from qola.plan.model import Plan, PlannedModule, PythonModule, TorchModule
from qola_base.files import sha256_of_json

SCHEMA_VERSION = 1
"""Incremented with every incompatible change of manifest.json."""

_ORIGIN_KEYS = ("kind", "package", "version", "sha256", "remote", "commit")


@dataclass(frozen=True)
class TorchFacts:
    """The version of a PyTorch, and that of its Python, such as 3.11."""

    torch: str
    python: str


class FileRecord(TypedDict):
    """Path, size in bytes and digest of a file."""

    path: str
    size: int
    sha256: str


class LibraryFacts(FileRecord):
    """Facts about a library, with its exported symbols, demangled and sorted."""

    symbols: tuple[str, ...]


class PackRecord(FileRecord):
    """A pack of device code for one arch."""

    arch: str


class KernelNames(TypedDict):
    """The kernel instances of a direction, or of a kernel in Triton."""

    count: int
    names: list[str]


class _SomeLibraries(TypedDict, total=False):
    """Keys of split libraries, of modules for AITER's Python, and of kernels in Triton."""

    packs: list[PackRecord]
    names: list[str]
    call: str
    archs: list[str]
    compiler: str


class LibraryRecord(_SomeLibraries):
    """A library in manifest.json; `md_name`, `so_path` and `duration_s` are ROCm/QoLA's keys."""

    name: str
    success: bool
    error: str
    library: str
    size: int
    sha256: str
    entry_points: list[str]
    symbols: list[str]
    kernels: dict[str, KernelNames]
    levels: dict[str, str]
    md_name: str
    so_path: str
    duration_s: None
    code_objects: list[dict[str, str]]


class AiterRecord(TypedDict):
    """The AITER tree of a bundle; `source` is the public part of its AITER.json."""

    generation: str
    id: str
    version: str
    patches: list[dict[str, str]]
    source: dict[str, str]


class InputsRecord(TypedDict):
    """The inputs of a bundle; digests of the canonical manifest and of plan.json are ``sha256``."""

    aiter: AiterRecord
    manifest: dict[str, str]
    plan: dict[str, str]
    toolchain: dict[str, str]


class SummaryRecord(TypedDict):
    """Numbers of libraries."""

    total: int
    success: int
    failed: int


class AiterJitRecord(TypedDict):
    """All that must be the same where AITER's Python imports the modules of `directory`."""

    directory: str
    torch: str
    python: str
    files: dict[str, str]


class _OnlyAiter(TypedDict, total=False):
    aiter_jit: AiterJitRecord


class BundleRecord(_OnlyAiter):
    """The content of manifest.json (docs/guide/bundle.md)."""

    schema: int
    qola: str
    name: str
    namespace: str
    archs: list[str]
    lazy: bool
    static: FileRecord | None
    inputs: InputsRecord
    modules: list[LibraryRecord]
    summary: SummaryRecord
    generated_at: str | None
    gpu_archs: str
    aiter_root: None
    manifest_src: None


def manifest_record(
    plan: Plan,
    libraries: Mapping[str, LibraryFacts],
    *,
    archs: Sequence[str],
    plan_sha256: str,
    origin: Mapping[str, Any],
    toolchain: Mapping[str, str],
    generated_at: str | None,
    lazy: bool = False,
    packs: Mapping[str, Mapping[str, FileRecord]] | None = None,
    static: FileRecord | None = None,
    triton: LibraryRecord | None = None,
    torch: TorchFacts | None = None,
) -> BundleRecord:
    """Return manifest.json as data.

    Args:
        libraries: the bundle's libraries by file name; modules without a library are omitted.
        packs: the packs of split libraries by file name and arch.
        generated_at: a time to record; without it, equal bundles have equal bytes.
        triton: the entry of the library of kernels in Triton, see `triton_record`.
        torch: of modules for AITER's Python; None for a bundle of libraries.
    """
    planned: list[PlannedModule | PythonModule | TorchModule] = [*plan.modules]
    planned += [*plan.python_modules, *plan.torch_modules]
    modules: list[LibraryRecord] = [
        {
            **_module(plan, module, libraries[module.library], frozenset(archs)),
            **_packs_record((packs or {}).get(module.library, {})),
        }
        for module in planned
        if module.library in libraries
    ]
    if triton:
        modules.append(triton)
    record: BundleRecord = {
        "schema": SCHEMA_VERSION,
        "qola": plan.qola,
        "name": plan.name,
        "namespace": plan.namespace,
        "archs": list(archs),
        "lazy": lazy,
        "static": static,
        "inputs": {
            "aiter": {
                "generation": plan.aiter.generation,
                "id": plan.aiter.id,
                "version": plan.aiter.version,
                "patches": list(origin.get("patches", [])),
                "source": _source(origin),
            },
            "manifest": {"sha256": sha256_of_json(plan.manifest)},
            "plan": {"sha256": plan_sha256},
            "toolchain": dict(toolchain),
        },
        "modules": modules,
        "summary": {"total": len(modules), "success": len(modules), "failed": 0},
        # Further keys of ROCm/QoLA's manifest.json.
        "generated_at": generated_at,
        "gpu_archs": ";".join(archs),
        "aiter_root": None,
        "manifest_src": None,
    }
    if torch:
        record["aiter_jit"] = _aiter_jit(plan, torch)
    return record


def _aiter_jit(plan: Plan, torch: TorchFacts) -> AiterJitRecord:
    return {
        "directory": AITER_JIT,
        "torch": torch.torch,
        "python": torch.python,
        "files": dict(plan.aiter_python),
    }


def _source(origin: Mapping[str, Any]) -> dict[str, str]:
    """Return the public part of AITER.json, without paths and passwords of this machine."""
    source = {key: str(origin[key]) for key in _ORIGIN_KEYS if key in origin}
    if remote := public_url(source.pop("remote", "")):
        source["remote"] = remote
    return source


def public_url(url: str) -> str:
    """Return a URL without user and password; "" for a URL of this machine only."""
    parts = urlsplit(url)
    if parts.scheme not in ("git", "http", "https", "ssh") or not parts.hostname:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def triton_record(
    plan: Plan, library: LibraryFacts, packs: Mapping[str, FileRecord], compiler: str
) -> LibraryRecord:
    """Return the entry of the library of kernels in Triton, in the form of a module's."""
    kernels = {kernel.name: [i.name for i in kernel.instances] for kernel in plan.triton}
    return {
        **_library_record(TRITON, library, library["symbols"], kernels),
        "archs": sorted(packs),
        "compiler": compiler,
        **_packs_record(packs),
    }


def _packs_record(packs: Mapping[str, FileRecord]) -> _SomeLibraries:
    """Return the packs of a library as in its entry, nothing for a library without packs."""
    if not packs:
        return {}
    return {"packs": [{"arch": arch, **pack} for arch, pack in sorted(packs.items())]}


def _library_record(
    name: str,
    library: LibraryFacts,
    entry_points: Sequence[str],
    kernels: Mapping[str, Sequence[str]],
) -> LibraryRecord:
    """Return the entry of a library; `kernels` has instance names by direction or kernel."""
    return {
        "name": name,
        "success": True,
        "error": "",
        "library": library["path"],
        "size": library["size"],
        "sha256": library["sha256"],
        "entry_points": list(entry_points),
        "symbols": list(library["symbols"]),
        "kernels": {key: {"count": len(own), "names": list(own)} for key, own in kernels.items()},
        "levels": {},
        "md_name": PurePosixPath(library["path"]).stem,
        "so_path": library["path"],
        "duration_s": None,
        "code_objects": [],
    }


def _module(
    plan: Plan,
    module: PlannedModule | PythonModule | TorchModule,
    library: LibraryFacts,
    archs: frozenset[str],
) -> LibraryRecord:
    kernels: dict[str, list[str]] = {}
    own = [] if isinstance(module, PythonModule) else plan.kernels_of(module)
    directions = () if isinstance(module, PythonModule) else module.directions
    for kernel in own:
        if not archs.isdisjoint(kernel.archs):
            kernels.setdefault(kernel.direction, []).append(kernel.name)
    namespace = plan.namespace
    scope = f"qola::{namespace}::" if namespace else "qola::"
    symbols = library["symbols"]
    entry_points = {s.split("(")[0] for s in symbols if s.startswith(scope) and "(" in s}
    if not isinstance(module, PlannedModule):
        entry_points = {module.symbol} if module.symbol else {*symbols}
    sorted_kernels = {direction: sorted(names) for direction, names in sorted(kernels.items())}
    record: LibraryRecord = {
        **_library_record(module.name, library, sorted(entry_points), sorted_kernels),
        "levels": {d.name: d.level for d in directions},
        "code_objects": [
            dict(sorted(vars(code_object).items()))
            for code_object in module.code_objects
            if code_object.arch in archs
        ],
    }
    if names := plan.further_names(module.name):
        record["names"] = names
    if isinstance(module, PythonModule) and module.call:
        record |= {"md_name": module.name, "call": module.call}
    return record


def to_json(record: BundleRecord) -> str:
    """Return the text of manifest.json."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"
