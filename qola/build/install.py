"""Installs built files into the output directory in ROCm/QoLA's layout, each one atomically."""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypedDict, cast

from qola.aiter.attention import ATTENTION
from qola.build.setup import ResolvedBuild
from qola.common.layout import (
    CMAKE_CONFIG,
    RECORD,
    SBOM,
    STATIC,
    TRITON,
    archive_file,
    component_files,
    component_of,
    lazy_place,
    library_file,
    triton_file,
)
from qola.common.version import docs_url
from qola.manifest.constants import NATIVE
from qola_base.cache import writable_by_others
from qola_base.files import scratch, writing
from qola_base.progress import log

PREVIOUS = ".previous"
"""Suffix of an earlier library whose module failed this time."""


class ModuleRecord(TypedDict):
    """The result of one module.

    Keys:
        md_name: name of its library without .so, as ROCm/QoLA calls it.
        error: the tools' error messages, "" on success.
        so_path: absolute path of the library, None if it was not built; so is `size`, in bytes.
        duration_s: seconds from the start of the build until the module was done.
        failed: kernel instances and other targets that did not build.
    """

    name: str
    md_name: str
    success: bool
    error: str
    so_path: str | None
    duration_s: float
    size: int | None
    failed: list[str]


def module_record(
    name: str,
    place: Path,
    library: Path | None,
    error: str = "",
    seconds: float = 0.0,
    failed: Sequence[str] = (),
    bundled: Mapping[str, Any] | None = None,
) -> ModuleRecord:
    """Return the record of a module: its library, to install at `place`, else its error."""
    own: ModuleRecord = {
        "name": name,
        "md_name": place.stem,
        "success": library is not None,
        "error": error,
        "so_path": str(place) if library else None,
        "duration_s": round(seconds, 2),
        "size": library.stat().st_size if library else None,
        "failed": list(failed),
    }
    return cast(ModuleRecord, {**(bundled or {}), **own})


class Summary(TypedDict):
    """Numbers of modules: all, successful and failed."""

    total: int
    success: int
    failed: int


class PrebuiltRecord(TypedDict):
    """The origin of a fetched bundle: its key, and the source that had it."""

    key: str
    source: str
    layout: str


class _Requested(TypedDict, total=False):
    wheel: str
    prebuilt: PrebuiltRecord
    arch_wheels: list[str]


class BuildResult(_Requested):
    """The content of manifest.json: a bundle's keys (docs/guide/bundle.md), ROCm/QoLA's, and more.

    `aiter` describes the source. `bundle_error` says why headers, licenses and SBOM, or the wheel,
    are missing; it is "" on success. `lazy` is true if the attention libraries are lazy. `wheel`
    is the absolute path of a requested wheel, `arch_wheels` has those of a split one's archs. Only
    `qola fetch` writes `prebuilt`.

    `generated_at` is UTC in ISO 8601; `aiter_root` is None if no directory was named;
    `gpu_archs` has the archs, separated by ;.
    """

    generated_at: str
    aiter: str
    aiter_root: str | None
    manifest_src: str
    bundle_error: str
    lazy: bool
    gpu_archs: str
    modules: list[ModuleRecord]
    summary: Summary


def run_record(
    chosen: ResolvedBuild,
    modules: list[ModuleRecord],
    archs: Sequence[str],
    *,
    lazy: bool,
    bundle_error: str = "",
) -> BuildResult:
    """Return the record of this run in manifest.json, with ROCm/QoLA's keys."""
    built = sum(module["success"] for module in modules)
    return BuildResult(
        generated_at=datetime.now(timezone.utc).isoformat(),
        aiter=chosen.aiter.describe(),
        aiter_root=str(chosen.aiter.root) if chosen.aiter.root else None,
        manifest_src=str(chosen.file),
        bundle_error=bundle_error,
        lazy=lazy,
        gpu_archs=";".join(archs) or NATIVE,
        modules=modules,
        summary=Summary(total=len(modules), success=built, failed=len(modules) - built),
    )


def install(
    output: Path,
    files: Mapping[str, Path],
    failed: Iterable[str],
    record: BuildResult,
    own: Iterable[str] = (),
) -> None:
    """Install files, then manifest.json.

    Each file is written under a temporary name and renamed, so that no file is ever incomplete and
    mapped files stay intact. Identical files keep their time stamps. Files of other modules stay.
    The earlier library of a failed module gets the suffix PREVIOUS, so that it does not look new.

    Args:
        output: the output directory, created if missing; all paths are relative to it.
        files: the file to copy, by path.
        failed: libraries and other files that were not made.
        own: directories and files that may contain only `files`.

    Raises:
        OSError: the directory cannot be written to. manifest.json is then as it was.
    """
    if why := writable_by_others(output):
        log.warning(
            f"warning: {output} is below {why[0]}, {why[1]}: load libraries only from directories "
            f"in which nobody else can create files ({docs_url('guide/bundle.md')})"
        )
    with _directories(output, files), scratch(output) as aside:
        # Write all files before renaming any: a full disk changes nothing.
        for name, source in files.items():
            # Bazel's outputs are links to read-only files.
            mode = 0o755 if os.access(source, os.X_OK) else 0o644
            if not _is_same(output / name, source, mode):
                with writing(output / name, aside / name):
                    (aside / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, aside / name)
                    (aside / name).chmod(mode)
        with writing(output / RECORD, aside / RECORD):
            text = json.dumps(record, indent=2, sort_keys=True) + "\n"
            (aside / RECORD).write_text(text, encoding="utf-8")
            (aside / RECORD).chmod(0o644)
        for name in files:
            if (aside / name).exists():
                os.replace(aside / name, output / name)
            (output / f"{name}{PREVIOUS}").unlink(missing_ok=True)
        for name in failed:
            if (output / name).exists():
                os.replace(output / name, output / f"{name}{PREVIOUS}")
        for name in own:
            _remove_others(output, output / name, files)
        os.replace(aside / RECORD, output / RECORD)


@contextmanager
def _directories(output: Path, names: Iterable[str]) -> Iterator[None]:
    """Create the directories of files; remove them again if the block fails."""
    made: list[Path] = []
    try:
        for path in sorted({output, *((output / name).parent for name in names)}):
            missing = [place for place in (path, *path.parents) if not place.is_dir()]
            for place in reversed(missing):
                place.mkdir()
                made.append(place)
        for name in names:
            if (output / name).is_dir():
                words = f"{os.strerror(errno.EISDIR)}, but a file is expected"
                raise IsADirectoryError(errno.EISDIR, words, str(output / name))
        yield
    except BaseException:
        for place in reversed(made):
            with suppress(OSError):
                place.rmdir()
        raise


def not_made(namespace: str, modules: Iterable[str], files: Container[str]) -> list[str]:
    """Return files of an earlier build of these modules that this build did not make."""
    named = [SBOM]
    bundled = [module for module in modules if module in (*ATTENTION, TRITON)]
    if bundled:
        named += [CMAKE_CONFIG, f"lib/{archive_file(namespace)}", *component_files(STATIC)]
    for module in bundled:
        named += component_files(component_of(module))
    return [name for name in named if name not in files]


def outdated(namespace: str, modules: Iterable[str], output: Path) -> list[str]:
    """Return directories and files whose earlier content must not stay.

    An earlier lazy library had other sources than the new one; packs of device code may be for
    archs that are no longer built, or of a split library that no longer is.
    """
    modules = tuple(modules)
    found = [lazy_place(namespace, name) for name in modules if name in ATTENTION]
    libraries = [library_file(namespace, name) for name in modules if name in ATTENTION]
    libraries += [triton_file(namespace)] if TRITON in modules else []
    for library in libraries:
        packs = output.glob(f"lib/{Path(library).stem}-gfx*.qpack")
        found += [path.relative_to(output).as_posix() for path in packs]
    # Lazy modules of other groups still need the program.
    indices = output.glob("share/qola/**/kernels.index")
    left = {path.parent.relative_to(output).as_posix() for path in indices} - set(found)
    return found if left else [*found, "bin/qola-kernels"]


def _remove_others(output: Path, path: Path, kept: Container[str]) -> None:
    """Remove other files at or below a path, and directories that become empty."""
    # Deepest paths first, so that directories are empty when they are visited.
    for found in (*sorted(path.rglob("*"), reverse=True), path):
        if found.is_dir() and not found.is_symlink():
            _remove_if_empty(found)
        elif found.relative_to(output).as_posix() not in kept:
            found.unlink(missing_ok=True)
    while path != output:
        _remove_if_empty(path)
        path = path.parent


def _remove_if_empty(directory: Path) -> None:
    if directory.is_dir() and not directory.is_symlink() and not any(directory.iterdir()):
        directory.rmdir()


def _is_same(path: Path, source: Path, mode: int) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_mode & 0o777 != mode:
        return False
    return filecmp.cmp(source, path, shallow=False)
