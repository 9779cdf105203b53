"""manifest.json: what a bundle is made from and what is in it (docs/guide/bundle.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from qola.files import sha256_of_json
from qola.plan.model import Plan, PlannedModule

SCHEMA_VERSION = 1
"""Raised with every change that an existing reader of manifest.json would misread."""

_ORIGIN_KEYS = ("kind", "package", "version", "sha256", "remote", "commit")


@dataclass(frozen=True)
class FileFacts:
    """Facts about any file; its size is in bytes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class LibraryFacts(FileFacts):
    """Facts about a built library; its exported symbols are demangled and sorted."""

    symbols: tuple[str, ...]


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
    static: FileFacts | None = None,
    more: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return manifest.json as data.

    Args:
        libraries: the bundle's libraries by file name; modules without one are left out.
        generated_at: a time to state; None for none, which is what makes bundles comparable.
        lazy: the libraries load their kernels when these are first called.
        static: the archive of the same modules.
        more: what is said of libraries that are no modules of AITER.
    """
    modules = [
        _module(plan, module, libraries[module.library], frozenset(archs))
        for module in plan.modules
        if module.library in libraries
    ]
    modules += map(dict, more)
    return {
        "schema": SCHEMA_VERSION,
        "qola": plan.qola,
        "name": plan.name,
        "namespace": plan.namespace,
        "archs": list(archs),
        "lazy": lazy,
        "static": asdict(static) if static else None,
        "inputs": {
            "aiter": {
                **vars(plan.aiter),
                "source": _source(origin),
                "patches": list(origin.get("patches", [])),
            },
            "manifest": {"sha256": sha256_of_json(plan.manifest)},
            "plan": {"sha256": plan_sha256},
            "toolchain": dict(toolchain),
        },
        "modules": modules,
        "summary": {"total": len(modules), "success": len(modules), "failed": 0},
        # What ROCm/QoLA's manifest.json has besides, in its form.
        "generated_at": generated_at,
        "gpu_archs": ";".join(archs),
        "aiter_root": None,
        "manifest_src": None,
    }


def _source(origin: Mapping[str, Any]) -> dict[str, str]:
    """Return what others may know of AITER.json: no path and no password of this machine."""
    source = {key: str(origin[key]) for key in _ORIGIN_KEYS if key in origin}
    if remote := public_url(source.pop("remote", "")):
        source["remote"] = remote
    return source


def public_url(url: str) -> str:
    """Return a URL without user and password; "" for what is none that others could use."""
    parts = urlsplit(url)
    if parts.scheme not in ("git", "http", "https", "ssh") or not parts.hostname:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def told_module(
    name: str,
    library: LibraryFacts,
    entry_points: Sequence[str],
    kernels: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return what manifest.json says of any library.

    Args:
        kernels: names of kernel instances, by direction or by kernel.
    """
    return {
        "name": name,
        "success": True,
        "error": "",
        "library": library.path,
        "size": library.size,
        "sha256": library.sha256,
        "entry_points": list(entry_points),
        "symbols": list(library.symbols),
        "kernels": {of: {"count": len(own), "names": list(own)} for of, own in kernels.items()},
        "levels": {},
        "md_name": PurePosixPath(library.path).stem,
        "so_path": library.path,
        "duration_s": None,
        "code_objects": [],
    }


def _module(
    plan: Plan, module: PlannedModule, library: LibraryFacts, archs: frozenset[str]
) -> dict[str, Any]:
    kernels: dict[str, list[str]] = {}
    for kernel in plan.kernels_of(module):
        if not archs.isdisjoint(kernel.archs):
            kernels.setdefault(kernel.direction, []).append(kernel.name)
    namespace = plan.namespace
    scope = f"qola::{namespace}::" if namespace else "qola::"
    entry_points = {s.split("(")[0] for s in library.symbols if s.startswith(scope) and "(" in s}
    sorted_kernels = {direction: sorted(names) for direction, names in sorted(kernels.items())}
    return {
        **told_module(module.name, library, sorted(entry_points), sorted_kernels),
        "levels": {found.name: found.level for found in module.directions},
        "code_objects": [
            dict(sorted(vars(found).items()))
            for found in module.code_objects
            if found.arch in archs
        ],
    }


def to_json(record: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the text of manifest.json."""
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"
