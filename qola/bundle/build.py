"""Writes a bundle: copies its files, then says what they are in manifest.json and the SBOM."""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from qola.bundle import cmake, licenses, pkgconfig, sbom
from qola.bundle.elf_versions import exported
from qola.bundle.flatten import HeaderUser, flatten
from qola.bundle.record import FileFacts, LibraryFacts, manifest_record, to_json
from qola.bundle.triton import TritonInput, compiler_of, is_own, module_record
from qola.errors import BundleError, Finding
from qola.files import sha256_of, write_if_changed, writing
from qola.layout import CONFIGS, RECORD, SBOM
from qola.plan.model import Plan

#: Of the C functions, and words of C++ for them; the others need not include these.
C_HEADERS = ("qola_c.h", "qola_fmha.hpp")
_CONFIGS = "aiter/configs/"
_TOOLCHAIN_KEYS = ("rocm_version", "hip_version", "clang_version")
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class LibraryInput:
    """A built library with the include directories of its users, in the compiler's order."""

    path: str
    include_dirs: tuple[str, ...]


@dataclass(frozen=True)
class LazyInput:
    """Sources, packs and program of lazy libraries.

    Attributes:
        namespace_dir: directory in the bundle for the modules' sources and for packs.
        roots: directory of each module's sources, by the module's name.
    """

    namespace_dir: str
    roots: Mapping[str, str]
    packs: tuple[str, ...]
    tool: str


@dataclass(frozen=True)
class BundleInputs:
    """Everything a bundle is made from; paths are relative to the working directory.

    Attributes:
        archs: what the libraries are built for: all of the plan's, or some.
        headers: the headers that may be read.
        rocm: JSON with the toolchain's versions.
        generated_at: a UTC time as 2026-01-31T00:00:00Z to state, "" for none.
        lazy: of lazy libraries; None: the libraries have their kernels inside.
        static: an archive of the same modules, None for none.
        triton: the library of kernels in Triton, None for none.
    """

    name: str
    archs: tuple[str, ...]
    libraries: tuple[LibraryInput, ...]
    headers: tuple[str, ...]
    plan: str
    tree: str
    configs: tuple[str, ...]
    license_files: tuple[str, ...]
    qola_license: str
    rocm: str
    generated_at: str
    lazy: LazyInput | None = None
    static: str | None = None
    triton: TritonInput | None = None

    @staticmethod
    def from_json(text: str) -> BundleInputs:
        """Read what rules/private/bundle.bzl writes."""
        data = json.loads(text)
        libraries = tuple(
            LibraryInput(library["path"], tuple(library["include_dirs"]))
            for library in data.pop("libraries")
        )
        lists = {
            key: tuple(data.pop(key)) for key in ("archs", "headers", "configs", "license_files")
        }
        lazy = data.pop("lazy", None)
        if lazy:
            lazy = LazyInput(**{**lazy, "packs": tuple(lazy["packs"])})
        triton = data.pop("triton", None)
        if triton:
            triton = TritonInput(**triton)
        parts = {"libraries": libraries, "lazy": lazy, "triton": triton}
        return BundleInputs(**{**data, **lists, **parts})


def build(inputs: BundleInputs, output: Path) -> None:
    """Write the bundle into the directory `output`, which is made or empty.

    Raises:
        BundleError: a license is missing, headers do not fit one directory or are undeclared, or
            a library is none of the plan's attention libraries.
    """
    created = _created(inputs.generated_at)
    plan = Plan.from_json(_text(inputs.plan))
    entries = _entries(plan, inputs)
    headers = (file for headers in plan.header_sets for file in headers.files)
    # Kernels in Triton have nothing of AITER's.
    components = licenses.needed(headers) if inputs.libraries else ("qola",)
    texts = licenses.collect(
        [
            *((licenses.component_of(file), _text(file)) for file in inputs.license_files),
            ("qola", _text(inputs.qola_license)),
        ],
        place=inputs.tree,
        components=components,
    )
    files = _Files(output)
    facts = {}
    for library in inputs.libraries:
        name = posixpath.basename(library.path)
        target = files.copy(library.path, f"lib/{name}", components)
        facts[name] = LibraryFacts(**vars(files.facts(f"lib/{name}")), symbols=exported(target))
    static = None
    if inputs.static:
        name = f"lib/{posixpath.basename(inputs.static)}"
        files.copy(inputs.static, name, components)
        static = files.facts(name)
    for name, file in _headers(inputs, entries).items():
        files.copy(file, f"include/{name}", _origin(inputs, file))
    for file in inputs.configs:
        name = posixpath.relpath(file, posixpath.join(inputs.tree, _CONFIGS))
        files.copy(file, f"{CONFIGS}/{name}", ("aiter",))
    if inputs.lazy:
        _copy_lazy(inputs.lazy, files, components)
    triton = [_copy_triton(inputs.triton, plan, files)] if inputs.triton else []
    for component, license in texts.items():
        files.write(license.text, license.path, (component,))
    rocm = json.loads(_text(inputs.rocm))
    record = manifest_record(
        plan,
        facts,
        archs=inputs.archs,
        plan_sha256=sha256_of(Path(inputs.plan)),
        origin=json.loads(_text(posixpath.join(inputs.tree, "AITER.json"))),
        toolchain={key: rocm[key] for key in _TOOLCHAIN_KEYS},
        generated_at=inputs.generated_at or None,
        lazy=inputs.lazy is not None,
        static=static,
        more=triton,
    )
    for path, text in {**cmake.package(record), **pkgconfig.texts(record)}.items():
        files.write(text, path, ("qola",))
    document = sbom.document(record, files.written(), texts, name=inputs.name, created=created)
    # Not a file of the SBOM: `qola build` installs the rest with a record of its own run.
    write_if_changed(output / RECORD, to_json(record))
    write_if_changed(output / SBOM, sbom.to_json(document))


class _Files:
    """The files of a bundle in the making."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._components: dict[str, tuple[str, ...]] = {}

    def copy(self, source: str, path: str, components: tuple[str, ...]) -> Path:
        """Copy a file's content; its mode and times are the building machine's."""
        target = self._target(path, components)
        with writing(target):
            shutil.copyfile(source, target)
        return target

    def write(self, text: str, path: str, components: tuple[str, ...]) -> None:
        write_if_changed(self._target(path, components), text)

    def facts(self, path: str) -> FileFacts:
        target = self._output / path
        return FileFacts(path, target.stat().st_size, sha256_of(target))

    def written(self) -> tuple[sbom.BundleFile, ...]:
        return tuple(
            sbom.BundleFile(
                path,
                hashlib.sha1((self._output / path).read_bytes(), usedforsecurity=False).hexdigest(),
                sha256_of(self._output / path),
                components,
            )
            for path, components in sorted(self._components.items())
        )

    def _target(self, path: str, components: tuple[str, ...]) -> Path:
        self._components[path] = components
        target = self._output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _copy_lazy(lazy: LazyInput, files: _Files, everything: tuple[str, ...]) -> None:
    """Copy what lazy libraries need: sources, packs and the program."""
    for module, root in sorted(lazy.roots.items()):
        for path in sorted(p for p in Path(root).rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            own = name.startswith("include/") and not name.startswith("include/qola/")
            components = (licenses.component_of(name),) if own else everything
            files.copy(str(path), f"{lazy.namespace_dir}/{module}/{name}", components)
    for pack in lazy.packs:
        name = posixpath.basename(pack)
        files.copy(pack, f"{lazy.namespace_dir}/packs/{name}", everything)
    files.copy(lazy.tool, "bin/qola-kernels", ("qola",)).chmod(0o755)


def _copy_triton(triton: TritonInput, plan: Plan, files: _Files) -> dict[str, Any]:
    """Copy library, packs and headers; return what manifest.json says of them."""
    place = f"lib/{posixpath.basename(triton.library)}"
    target = files.copy(triton.library, place, ("qola",))
    packs = {}
    for arch, pack in sorted(triton.packs.items()):
        name = f"lib/{posixpath.basename(pack)}"
        # What a user's kernel is licensed under is not known here.
        files.copy(pack, name, ("qola",) if is_own(plan) else ())
        packs[arch] = files.facts(name)
    for name, header in sorted(triton.headers.items()):
        files.copy(header, f"include/{name}", ("qola",))
    facts = LibraryFacts(**vars(files.facts(place)), symbols=exported(target))
    return module_record(plan, facts, packs, compiler_of(triton.packs))


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _created(generated_at: str) -> datetime:
    try:
        return datetime.strptime(generated_at or _EPOCH, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise BundleError(
            Finding("generated_at", f'"{generated_at}"', f"a UTC time such as {_EPOCH}, or nothing")
        ) from None


def _entries(plan: Plan, inputs: BundleInputs) -> dict[str, str]:
    """Return the name that the public header of each library has, by the library's path."""
    known = {module.library: module.public_header.name for module in plan.modules}
    python = {module.library for module in plan.python_modules}
    python |= {module.library for module in plan.torch_modules}
    findings = []
    for library in inputs.libraries:
        name = posixpath.basename(library.path)
        if name in python:
            findings.append(
                Finding(
                    library.path,
                    "a module that Python imports, with pybind11 in it",
                    "attention libraries: a bundle has the licenses and headers of these alone",
                    "leave it out of the qola_bundle; the file is an output of its qola_library",
                )
            )
        elif name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "a library of that plan"
            findings.append(Finding(library.path, f"no library of {inputs.plan}", expected))
    if findings:
        raise BundleError(findings)
    return {lib.path: known[posixpath.basename(lib.path)] for lib in inputs.libraries}


def _headers(inputs: BundleInputs, entries: Mapping[str, str]) -> dict[str, str]:
    """Return what include/ holds, as flatten; raise BundleError for an undeclared header, too."""
    flat = flatten(
        Path(),
        [HeaderUser((entries[lib.path], *C_HEADERS), lib.include_dirs) for lib in inputs.libraries],
    )
    # Without a sandbox the whole tree can be read; a bundle must not depend on that.
    declared = {posixpath.normpath(header) for header in inputs.headers}
    undeclared = [file for file in flat.values() if file not in declared]
    if undeclared:
        raise BundleError(
            [Finding(file, "not among the headers of a library", "a header") for file in undeclared]
        )
    return flat


def _origin(inputs: BundleInputs, header: str) -> tuple[str, ...]:
    if not header.startswith(inputs.tree + "/"):
        return ("qola",)
    return (licenses.component_of(header),)
