"""Writes a bundle: copies its files, and describes them in manifest.json and the SBOM."""

from __future__ import annotations

import json
import posixpath
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from qola.bundle import config_files, licenses, sbom
from qola.bundle.elf_versions import exported
from qola.bundle.flatten import HeaderUser, flatten
from qola.bundle.pack_files import labels_of_pack
from qola.bundle.record import (
    FileRecord,
    LibraryFacts,
    LibraryRecord,
    TorchFacts,
    manifest_record,
    to_json,
    triton_record,
)
from qola.common.layout import AITER_JIT, CONFIGS, RECORD, SBOM, function_file
from qola.common.packages import ROOT
from qola.plan.model import Plan
from qola_base.errors import BundleError, Finding
from qola_base.files import sha256_of, write_if_changed, writing

#: The C API and its C++ wrapper, which the other public headers need not include.
C_HEADERS = ("qola_c.h", "qola_fmha.hpp")
_CONFIGS = "aiter/configs/"
_IN_WHEEL = ROOT / "runtime/wheel"
AITER_MODULES = "aiter_modules.py"
"""File that lists and checks the modules for AITER's Python."""
_BUILD = "AITER creates this directory when it is imported, also where nothing can be written.\n"
_TOOLCHAIN_KEYS = ("rocm_version", "hip_version", "clang_version")
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class LibraryInput:
    """A built library with the include directories of its users, in the compiler's order.

    Attributes:
        packs: of a split library, by arch.
    """

    path: str
    include_dirs: tuple[str, ...]
    packs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LazyInput:
    """Sources, packs and program of lazy libraries.

    Attributes:
        namespace_dir: directory in the bundle for the sources of modules (`roots`) and for packs.
    """

    namespace_dir: str
    roots: Mapping[str, str]
    packs: tuple[str, ...]
    tool: str


@dataclass(frozen=True)
class TritonInput:
    """A library of kernels in Triton, with a pack per arch, and headers by path below include/."""

    library: str
    packs: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class BundleInputs:
    """All inputs of a bundle; paths are relative to the working directory.

    Attributes:
        archs: archs of the libraries, all of the plan's or some of them.
        headers: the declared headers; others may not be read.
        rocm: JSON file with the toolchain's versions.
        generated_at: a UTC time such as 2026-01-31T00:00:00Z for manifest.json, "" for none.
        lazy: files of lazy libraries; None if the libraries contain their kernels.
        static: an archive of the same modules, or None.
        torch: the libraries are modules that AITER's Python imports, for this PyTorch; None if
            they are C++ libraries.
        names: directories with a library for each further name of the modules.
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
    torch: TorchFacts | None = None
    names: tuple[str, ...] = ()


def build(inputs: BundleInputs, output: Path) -> None:
    """Write the bundle into the directory `output`, which is missing or empty.

    Raises:
        BundleError: a license is missing, headers conflict in one include directory or are
            undeclared, or a library is not an attention library of the plan.
    """
    try:
        created = datetime.strptime(inputs.generated_at or _EPOCH, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        expected = f"a UTC time such as {_EPOCH}, or nothing"
        finding = Finding("generated_at", f'"{inputs.generated_at}"', expected)
        raise BundleError(finding) from None
    plan = Plan.from_json(_text(inputs.plan))
    public_headers = {} if inputs.torch else _public_headers(plan, inputs)
    headers = [file for headers in plan.header_sets for file in headers.files]
    headers += [file for module in plan.python_modules for file in module.headers]
    # Kernels in Triton contain no code of AITER.
    components = licenses.needed(headers) if inputs.libraries else ("qola",)
    texts = licenses.collect(
        inputs.license_files, inputs.qola_license, place=inputs.tree, components=components
    )
    files = _Files(output)
    facts = {}
    packs = {}
    directory = AITER_JIT if inputs.torch else "lib"
    functions = {module.library for module in plan.functions}
    for library in inputs.libraries:
        name = posixpath.basename(library.path)
        place = f"{directory}/{function_file(name) if name in functions else name}"
        files.copy(library.path, place, components)
        facts[name] = files.library_facts(place)
        packs[name] = _copy_packs(library.packs, files, components)
    for folder in inputs.names:
        for shim in sorted(Path(folder).glob("*.so")):
            files.copy(str(shim), f"{directory}/{shim.name}", ("qola",))
    if inputs.torch:
        files.copy(str(_IN_WHEEL / AITER_MODULES), AITER_MODULES, ("qola",))
        files.write(_BUILD, f"{AITER_JIT}/build/README", ("qola",))
    static = None
    if inputs.static:
        name = f"lib/{posixpath.basename(inputs.static)}"
        files.copy(inputs.static, name, components)
        static = files.facts(name)
    found = {} if inputs.torch else _find_headers(inputs, public_headers)
    for name, file in found.items():
        of_tree = file.startswith(inputs.tree + "/")
        component = licenses.component_of(file) if of_tree else "qola"
        files.copy(file, f"include/{name}", (component,))
    for file in inputs.configs:
        name = posixpath.relpath(file, posixpath.join(inputs.tree, _CONFIGS))
        files.copy(file, f"{CONFIGS}/{name}", ("aiter",))
    if inputs.lazy:
        _copy_lazy(inputs.lazy, files, components)
    triton = _copy_triton(inputs.triton, plan, files) if inputs.triton else None
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
        packs=packs,
        static=static,
        triton=triton,
        torch=inputs.torch,
    )
    if not inputs.torch:
        for path, text in config_files.texts(record).items():
            files.write(text, path, ("qola",))
    own = (output, files.components, texts)
    document = sbom.document(record, *own, name=inputs.name, created=created)
    # The SBOM omits manifest.json, because `qola build` replaces it by a record of its run.
    write_if_changed(output / RECORD, to_json(record))
    write_if_changed(output / SBOM, sbom.to_json(document))


class _Files:
    """Writes the files of a bundle, and collects their components by path."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self.components: dict[str, tuple[str, ...]] = {}

    def copy(self, source: str, path: str, components: tuple[str, ...]) -> Path:
        """Copy a file's content, without its mode and times, which depend on the machine."""
        target = self._target(path, components)
        with writing(target):
            shutil.copyfile(source, target)
        return target

    def write(self, text: str, path: str, components: tuple[str, ...]) -> None:
        write_if_changed(self._target(path, components), text)

    def facts(self, path: str) -> FileRecord:
        target = self._output / path
        return {"path": path, "size": target.stat().st_size, "sha256": sha256_of(target)}

    def library_facts(self, path: str) -> LibraryFacts:
        return {**self.facts(path), "symbols": exported(self._output / path)}

    def _target(self, path: str, components: tuple[str, ...]) -> Path:
        self.components[path] = components
        target = self._output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


def _copy_lazy(lazy: LazyInput, files: _Files, all_components: tuple[str, ...]) -> None:
    """Copy the files of lazy libraries: sources, packs and the program."""
    for module, root in sorted(lazy.roots.items()):
        for path in sorted(p for p in Path(root).rglob("*") if p.is_file()):
            name = path.relative_to(root).as_posix()
            own = name.startswith("include/") and not name.startswith("include/qola/")
            components = (licenses.component_of(name),) if own else all_components
            files.copy(str(path), f"{lazy.namespace_dir}/{module}/{name}", components)
    for pack in lazy.packs:
        name = posixpath.basename(pack)
        files.copy(pack, f"{lazy.namespace_dir}/packs/{name}", all_components)
    files.copy(lazy.tool, "bin/qola-kernels", ("qola",)).chmod(0o755)


def _copy_packs(
    packs: Mapping[str, str], files: _Files, components: tuple[str, ...]
) -> dict[str, FileRecord]:
    """Copy the packs of a library next to it; return their facts by arch."""
    names = {arch: f"lib/{posixpath.basename(pack)}" for arch, pack in sorted(packs.items())}
    for arch, name in names.items():
        files.copy(packs[arch], name, components)
    return {arch: files.facts(name) for arch, name in names.items()}


def _copy_triton(triton: TritonInput, plan: Plan, files: _Files) -> LibraryRecord:
    """Copy library, packs and headers; return the library's entry in manifest.json."""
    path = f"lib/{posixpath.basename(triton.library)}"
    files.copy(triton.library, path, ("qola",))
    # The license of a user's kernel is unknown.
    components = ("qola",) if all(kernel.own for kernel in plan.triton) else ()
    packs = _copy_packs(triton.packs, files, components)
    for name, header in sorted(triton.headers.items()):
        files.copy(header, f"include/{name}", ("qola",))
    return triton_record(plan, files.library_facts(path), packs, compiler_of(triton.packs))


def compiler_of(packs: Mapping[str, str]) -> str:
    """Return the compiler of the kernels in packs, such as triton 3.9.0."""
    found = {label[2] for arch, pack in packs.items() for label in labels_of_pack(Path(pack), arch)}
    return ", ".join(sorted(found))


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _public_headers(plan: Plan, inputs: BundleInputs) -> dict[str, str]:
    """Return the public header of each library, by the library's path."""
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
                    "a Python module, which contains pybind11",
                    "attention libraries: a bundle has licenses and headers of these only",
                    "remove it from the qola_bundle; the file is an output of its qola_library",
                )
            )
        elif name not in known:
            expected = f"one of {', '.join(sorted(known))}" if known else "a library of that plan"
            findings.append(Finding(library.path, f"not a library of {inputs.plan}", expected))
    if findings:
        raise BundleError(findings)
    return {lib.path: known[posixpath.basename(lib.path)] for lib in inputs.libraries}


def _find_headers(inputs: BundleInputs, public_headers: Mapping[str, str]) -> dict[str, str]:
    """Return the files of include/; raise BundleError for conflicts and undeclared headers."""
    users = (
        HeaderUser((public_headers[lib.path], *C_HEADERS), lib.include_dirs)
        for lib in inputs.libraries
    )
    flat = flatten(Path(), list(users))
    # Without a sandbox the whole tree is readable; the bundle must not depend on that.
    declared = set(map(posixpath.normpath, inputs.headers))
    undeclared = [file for file in flat.values() if file not in declared]
    if undeclared:
        raise BundleError(
            [Finding(file, "not among the headers of a library", "a header") for file in undeclared]
        )
    return flat
