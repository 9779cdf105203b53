"""Installs an archive as `qola build` installs what it has built: whole files, then the record."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from qola.build.install import BuildResult, ModuleRecord, install, not_made, outdated, summarize
from qola.errors import Finding, PrebuiltError
from qola.layout import RECORD, library_file
from qola.prebuilt.archive import unpack
from qola.prebuilt.store import Found
from qola.prebuilt.te_layout import LAYOUT, without_top


@dataclass(frozen=True)
class Wanted:
    """What a bundle is installed as.

    Attributes:
        key: the key, as files are named.
        namespace: the manifest's.
        modules: modules that have to be in it.
        archs: archs of the libraries.
        lazy: whether the libraries are lazy ones.
        manifest_src: path of the manifest.
        aiter: the AITER source in words.
        aiter_root: directory of the AITER tree, None for none.
    """

    key: str
    namespace: str
    modules: tuple[str, ...]
    archs: tuple[str, ...]
    lazy: bool
    manifest_src: str
    aiter: str
    aiter_root: str | None


def install_found(found: Found, wanted: Wanted, output: Path) -> BuildResult | None:
    """Unpack an archive beside the output directory and install it.

    Args:
        found: the archive, verified.
        wanted: what it is installed as.
        output: the output directory.

    Returns:
        What manifest.json holds; None for an archive of TransformerEngine's without a library of
        one of the modules.

    Raises:
        PrebuiltError: the archive has what it may not have, or lacks what it has to have.
    """
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=found.archive.parent) as directory:
        unpacked = unpack(found.archive, Path(directory), found.unpacked_size, found.source)
        if found.layout == LAYOUT:
            targets = without_top(list(unpacked))
            files = {targets[name]: path for name, path in unpacked.items()}
            bundled: Mapping[str, Any] = {}
        else:
            files = dict(unpacked)
            bundled = _bundle_record(files, found.source)
        files.pop(RECORD, None)
        libraries = _libraries(wanted, bundled)
        missing = [module for module, name in libraries.items() if name not in files]
        if missing and found.layout == LAYOUT:
            return None
        if missing:
            lacking = f"no library of {', '.join(missing)}"
            raise PrebuiltError(Finding(found.source, lacking, "the modules of the manifest"))
        sizes = {module: files[name].stat().st_size for module, name in libraries.items()}
        run = _run_record(found, wanted, libraries, sizes, bundled, output)
        result = cast(BuildResult, {**bundled, **run})
        own = outdated(wanted.namespace, wanted.modules, wanted.lazy, output)
        install(output, files, not_made(wanted.namespace, wanted.modules, files), result, own)
        return result


def _bundle_record(files: Mapping[str, Path], place: str) -> Mapping[str, Any]:
    """Returns a bundle's manifest.json."""
    try:
        record = json.loads(files[RECORD].read_text(encoding="utf-8"))
        record["modules"] = [
            {**module, "name": str(module["name"])} for module in record["modules"]
        ]
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise PrebuiltError(
            Finding(
                place, f"no {RECORD} of a bundle in it: {error}", "a bundle (docs/guide/bundle.md)"
            )
        ) from None
    return cast("Mapping[str, Any]", record)


def _libraries(wanted: Wanted, bundled: Mapping[str, Any]) -> dict[str, str]:
    """Returns the path of each module's library; "" for one that a bundle does not have."""
    if not bundled:
        names = {module: library_file(wanted.namespace, module) for module in wanted.modules}
        return {module: f"lib/{name}" for module, name in names.items()}
    known = {module["name"]: str(module.get("library", "")) for module in bundled["modules"]}
    return {module: known.get(module, "") for module in wanted.modules}


def _run_record(
    found: Found,
    wanted: Wanted,
    libraries: Mapping[str, str],
    sizes: Mapping[str, int],
    bundled: Mapping[str, Any],
    output: Path,
) -> dict[str, Any]:
    """Returns what manifest.json says of this run, and ROCm/QoLA's keys."""
    known = {module["name"]: module for module in bundled.get("modules", ())}
    modules = [
        _module(known.get(name, {}), name, output / library, sizes[name])
        for name, library in libraries.items()
    ]
    record = BuildResult(
        generated_at=datetime.now(timezone.utc).isoformat(),
        aiter=wanted.aiter,
        aiter_root=wanted.aiter_root,
        manifest_src=wanted.manifest_src,
        bundle_error="",
        lazy=wanted.lazy,
        gpu_archs=";".join(wanted.archs),
        modules=modules,
        summary=summarize(modules),
    )
    prebuilt = {"key": wanted.key, "source": found.source, "layout": found.layout}
    return {**record, "prebuilt": prebuilt}


def _module(known: Mapping[str, Any], name: str, library: Path, size: int) -> ModuleRecord:
    record = ModuleRecord(
        name=name,
        md_name=library.stem,
        success=True,
        error="",
        so_path=str(library),
        duration_s=0.0,
        size=size,
        failed=[],
    )
    return cast(ModuleRecord, {**known, **record})
