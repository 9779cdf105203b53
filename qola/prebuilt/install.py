"""Installs an archive like `qola build`: complete files first, then the record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from qola.build.install import BuildResult, install, module_record, not_made, outdated, run_record
from qola.build.setup import ResolvedBuild
from qola.common.layout import RECORD, TRITON, library_file, triton_file
from qola.common.version import docs_url
from qola.prebuilt.archive import unpack
from qola.prebuilt.key import Key
from qola.prebuilt.record import MAX_SIZE
from qola.prebuilt.store import Found
from qola.prebuilt.te_layout import LAYOUT, without_top
from qola_base.errors import Finding, PrebuiltError
from qola_base.files import scratch

ForeignRecord = Mapping[str, Any]
"""manifest.json of a fetched bundle, of which only the names of modules are checked."""


def install_found(
    found: Found, chosen: ResolvedBuild, key: Key, lazy: bool, output: Path
) -> BuildResult | None:
    """Unpack a verified archive and install it; return the content of manifest.json.

    Returns None if an archive of TransformerEngine lacks a library.

    Raises:
        PrebuiltError: the archive has forbidden members, or lacks required ones.
    """
    namespace, modules = chosen.manifest.namespace, chosen.names
    with scratch(found.archive.parent) as directory:
        files = unpack(found.archive, directory, found.unpacked_size, found.source)
        bundled: ForeignRecord = {"modules": []}
        if found.layout == LAYOUT:
            targets = without_top(list(files))
            files = {targets[name]: path for name, path in files.items()}
            named = {name: library_file(namespace, name) for name in modules}
            if TRITON in named:
                named[TRITON] = triton_file(namespace)
            libraries = {name: f"lib/{file}" for name, file in named.items()}
            if not files.keys() >= set(libraries.values()):
                return None
        else:
            bundled = bundle_record(files, found.source)
            libraries = libraries_of(bundled, modules, files, found.source)
        files.pop(RECORD, None)
        records = {module["name"]: module for module in bundled["modules"]}
        built = [
            module_record(name, output / path, files[path], bundled=records.get(name, {}))
            for name, path in libraries.items()
        ]
        run = run_record(chosen, built, key.archs, lazy=lazy)
        prebuilt = {"key": key.text, "source": found.source, "layout": found.layout}
        result = cast(BuildResult, {**bundled, **run, "prebuilt": prebuilt})
        own = outdated(namespace, modules, output)
        install(output, files, not_made(namespace, modules, files), result, own)
        return result


def bundle_record(files: Mapping[str, Path], place: str) -> ForeignRecord:
    """Return a bundle's manifest.json; raise PrebuiltError if it is missing."""
    try:
        if files[RECORD].stat().st_size > MAX_SIZE:
            raise ValueError(f"more than {MAX_SIZE} bytes")
        record = json.loads(files[RECORD].read_text(encoding="utf-8"))
        record["modules"] = [
            {**module, "name": str(module["name"])} for module in record["modules"]
        ]
        # It must be possible to write it again; some readable JSON is not.
        json.dumps(record)
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        words = repr(f"{type(error).__name__} {error}")[1:-1][:200]
        raise PrebuiltError(
            Finding(
                place,
                f"no {RECORD} of a bundle in it: {words}",
                f"a bundle ({docs_url('guide/bundle.md')})",
            )
        ) from None
    return cast(ForeignRecord, record)


def libraries_of(
    bundled: ForeignRecord, modules: Sequence[str], files: Mapping[str, Path], place: str
) -> dict[str, str]:
    """Return the path of each module's library; raise PrebuiltError if one is missing."""
    known = {module["name"]: str(module.get("library", "")) for module in bundled["modules"]}
    libraries = {name: known.get(name, "") for name in modules}
    good = {name for name in files if name.endswith(".so")}
    if missing := [module for module, name in libraries.items() if name not in good]:
        lacking = f"no library of {', '.join(missing)}"
        raise PrebuiltError(Finding(place, lacking, "the modules of the manifest"))
    return libraries
