"""Runs the generators of a module, and copies the sources that AITER's entry names."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, ENTRIES, attention_of
from qola.aiter.includes import closure, include_dirs, includes
from qola.aiter.module_kinds import SOURCE_SUFFIXES
from qola.aiter.tree import AiterTree
from qola.codegen.asm.domain import domain_header
from qola.codegen.asm.later import unreached
from qola.codegen.asm.script import generated_files
from qola.codegen.generate import generate
from qola.codegen.types import GeneratedSource, KernelSet
from qola.common.folder import Folder
from qola.plan.batches import cut_generated
from qola.plan.model import PlannedFile
from qola.plan.request import ResolvedModule, ResolvedRequest
from qola_base.errors import Finding, PlanError

_ASM_DOMAIN = "qola_asm_domain.h"
"""Generated header with the problems that the manifest leaves to assembly kernels."""

_FOLDER = "generated"
"""Directory of generated files below a module's directory, an include directory of its sources.
If the files differ from arch to arch, the include directories are those of the archs in it."""

_ONCE = "once"
"""Directory of headers that include a header without a guard once, in the include directory of the
generated files. An include directory before that."""


@dataclass(frozen=True, kw_only=True)
class GeneratedModule(ResolvedModule):
    """A module with the output of its generators, and the sources of AITER's own entry.

    Paths of sources and other generated files are those in the manifest's repository. Names of
    sources have no suffix.
    """

    kernels: KernelSet
    batch_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Generated files that the compile of a batch of generated sources reads, by its name."""
    per_arch: bool = False
    """Its generated files differ from arch to arch: each source is compiled for one arch."""

    @property
    def tree_files(self) -> tuple[str, ...]:
        """Files of the tree that it is made of, without headers and generators."""
        objects = (code_object.file for code_object in self.kernels.code_objects)
        return (*self.config.srcs, *objects, *self.kernels.inputs)

    @property
    def generated_files(self) -> tuple[PlannedFile, ...]:
        """The generated files that its sources include."""
        return planned_files(self.kernels.tables)

    @property
    def source_copts(self) -> dict[str, tuple[str, ...]]:
        """The additional flags of sources by name, of those that have some."""
        sources = (source for source in self.kernels.sources if source.role != "batch")
        found = {source.name: self.config.flags_of_source(source.file) for source in sources}
        return {name: flags for name, flags in sorted(found.items()) if flags}


def planned_files(sources: Iterable[GeneratedSource]) -> tuple[PlannedFile, ...]:
    """Return files without their roles."""
    return tuple(PlannedFile(source.name, source.file, source.sha256) for source in sources)


def generate_module(
    resolved: ResolvedRequest, module: ResolvedModule, output: Folder, *, explain: bool = False
) -> GeneratedModule:
    """Run the generators of an attention module.

    Args:
        output: gets <module>/kernels, <module>/dispatch, <module>/sources and <module>/include.
        explain: explain for every kernel of the receipts in use why it is kept or dropped.

    Raises:
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
        PlanError: two sources have the same name, or a source is outside of the tree.
    """
    request, spec = resolved.request, module.spec
    kernels = generate(
        request.tree,
        module.config,
        module.selection,
        resolved.archs,
        output.below(spec.name),
        explain=explain,
        cached=request.answers,
    )
    direction = attention_of(module.config.name).direction
    copied = _copy_sources(request.tree, module, output, direction)
    # A generated source exists once for each set of archs.
    generated = [Path(name).stem for name in {source.name for source in kernels.sources}]
    _check_names(spec.name, [*generated, *(source.name for source in copied)])
    if kernels.code_objects and not kernels.tables and module.config.name in ATTENTION:
        header = domain_header(module.config.name, module.selection.variants)
        output.write(f"{spec.name}/include/{_ASM_DOMAIN}", header)
    sources = (
        replace(source, name=Path(source.name).stem, file=f"{spec.name}/{source.file}")
        for source in kernels.sources
    )
    tables = (replace(table, file=f"{spec.name}/{table.file}") for table in kernels.tables)
    kernels = replace(kernels, sources=(*sources, *copied), tables=tuple(tables))
    return GeneratedModule(**vars(module), kernels=kernels)


def _check_names(module: str, names: Iterable[str]) -> None:
    """Refuse two sources of one name."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise PlanError(
            Finding(
                f"{module}.srcs",
                f"{', '.join(twice)}: two sources of one name",
                "sources whose names, without suffix, differ from each other and from those "
                "that generators write",
                "drop_srcs leaves one out",
            )
        )


def _copy_sources(
    tree: AiterTree, module: ResolvedModule, output: Folder, direction: str
) -> tuple[GeneratedSource, ...]:
    """Copy the sources of AITER's entry, because cc_library takes no .cu file.

    Args:
        direction: of the module's assembly kernels, "" for none.
    """
    spec = module.spec
    for src in module.config.srcs:
        # Links are not followed: the repository of a local tree is made of links to it.
        if posixpath.normpath(src).startswith(("/", "../")):
            raise PlanError(
                Finding(f"{spec.name}.srcs", src, "a source within the AITER tree", f"remove {src}")
            )
    sources = []
    for file in module_kinds.sources(tree, module.config, spec.drop_srcs):
        text = (tree.root / file).read_text(encoding="utf-8")
        if module.config.without_ck and _needs_ck(text, direction):
            continue
        name = Path(file).stem
        copy = f"{spec.name}/sources/{name}.cpp"
        sources.append(GeneratedSource(name, copy, output.write(copy, text), direction, "entry"))
    return tuple(sources)


def _needs_ck(text: str, main: str) -> bool:
    """Return whether a source is the entry of a direction that only CK has kernels for."""
    names = (name for direction, name in ENTRIES.items() if direction != main)
    return re.search(rf"^\s*(?:float\s+)?(?:{'|'.join(names)})\(", text, re.MULTILINE) is not None


def launch_findings(tree: AiterTree, module: GeneratedModule) -> tuple[Finding, ...]:
    """Return the generators' warnings; they are errors if nothing launches any of the kernels."""
    unlaunched = _unlaunched(tree, module)
    fix = (
        f"leave {module.spec.name} out of the manifest, or use another commit of AITER, whose "
        "entry point calls it (a fork or a patch may)"
    )
    return tuple(
        replace(finding, severity="error", fix=fix) if finding in unlaunched else finding
        for finding in module.kernels.warnings
    )


def _unlaunched(tree: AiterTree, module: GeneratedModule) -> list[Finding]:
    """Return the warnings of kernels that nothing launches if the library has no other kernels."""
    if not module.config.without_ck:
        return []
    archs: dict[str, set[str]] = {}
    for code_object in module.kernels.code_objects:
        folder = code_object.key.removeprefix(f"hsa/{code_object.arch}/").partition("/")[0]
        archs.setdefault(folder, set()).add(code_object.arch)
    findings: list[Finding] = []
    for folder, archs_of_folder in archs.items():
        reached = {folder: sorted(archs_of_folder)}
        new = list(unreached(tree, module.config, module.spec.drop_srcs, reached))
        if not new:
            return []
        findings += new
    return findings


def generate_further(
    resolved: ResolvedRequest, module: ResolvedModule, output: Folder
) -> GeneratedModule:
    """Copy the sources of a module that is not attention, and run its generators.

    Args:
        output: gets <module>/sources and <module>/generated.

    Raises:
        PlanError: Python cannot use such a module, or two sources have the same name.
        CodegenError: a generator fails, or writes different files for different archs for a module
            without PyTorch.
    """
    tree, config, spec = resolved.request.tree, module.config, module.spec
    if config.is_standalone or (module.torch and not config.is_python_module):
        kind = "a program" if config.is_standalone else "a C++ library"
        raise not_for_python(resolved, module, kind)
    copied = _copy_sources(tree, module, output, "")
    made = generated_files(tree, config, resolved.archs, per_arch=module.torch)
    sources: list[GeneratedSource] = []
    headers: list[GeneratedSource] = []
    batch_files: dict[str, tuple[str, ...]] = {}
    for arch, files in made.files.items():
        generated, included, files_of_batches = _write_generated(
            files,
            output,
            f"{spec.name}/{_FOLDER}/{arch}".removesuffix("/"),
            arch,
            resolved.request.manifest.batch,
            config.flags_of_source,
            lambda roots: map(tree.text, closure(tree.root, include_dirs(tree, config), roots)),
        )
        archs = (arch,) if arch else ()
        own = [replace(source, archs=archs) for source in (*copied, *generated)]
        _check_names(spec.name, (source.name for source in own))
        sources += own
        headers += included
        batch_files |= files_of_batches
    # The compiler searches the directory of the original source first; the copy is elsewhere.
    own_dirs = {
        posixpath.dirname(file) for file in module_kinds.sources(tree, config, spec.drop_srcs)
    }
    dirs = dict.fromkeys((*config.include_dirs, *sorted(own_dirs)))
    kernels = KernelSet(
        kernels=(),
        sources=tuple(sources),
        headers=tuple(
            dict.fromkeys(
                name
                for files in made.files.values()
                for name in (*files, *_relative_includes(files))
            )
        ),
        tables=tuple(headers),
        inputs=made.inputs,
    )
    config = replace(config, include_dirs=tuple(dirs))
    return GeneratedModule(
        **{**vars(module), "config": config},
        kernels=kernels,
        batch_files=batch_files,
        per_arch="" not in made.files,
    )


def not_for_python(resolved: ResolvedRequest, module: ResolvedModule, reason: str) -> PlanError:
    """Return the error of a module that Python cannot use."""
    return PlanError(
        Finding(
            resolved.place(module.spec, "name"),
            f"{module.config.name}: {reason}",
            "a module that Python imports, or whose C functions it calls",
            "remove it from the manifest",
        )
    )


def own_texts(module: GeneratedModule, output: Folder) -> dict[str, str]:
    """Return the texts that decide what a module includes, by their path."""
    # Those that qola writes include only other generated files.
    files = (*module.kernels.sources, *module.kernels.tables)
    own = (source.file for source in files if source.role not in ("batch", "once"))
    return {file: output.text(file) for file in own}


def _write_generated(
    files: Mapping[str, bytes],
    output: Folder,
    root: str,
    arch: str,
    size: int,
    flags_of: Callable[[str], tuple[str, ...]],
    tree_headers: Callable[[Iterable[str]], Iterable[str]],
) -> tuple[list[GeneratedSource], list[GeneratedSource], dict[str, tuple[str, ...]]]:
    """Write generated files.

    Sources without conflicting names are compiled in batches of `size`, as kernel instances are.
    Those with flags of their own, by `flags_of`, are compiled alone.

    Args:
        root: directory of the files.
        arch: the only arch that the files are for; "" for files for all archs.
        tree_headers: as for `cut_generated`.

    Returns:
        The sources to compile, the files that these include, and the files that each batch
        includes, by its name.
    """
    texts = {name: data.decode("utf-8") for name, data in files.items()}
    compiled = [name for name in texts if name.endswith(SOURCE_SUFFIXES)]
    usual = [name for name in compiled if not flags_of(name)]
    batches = list(cut_generated(texts, usual, size, tree_headers))
    # Batches of different archs can have the same members.
    names = {b.name: f"{b.name}_{arch}" if arch else b.name for b in batches}
    alone = {*compiled} - {member for batch in batches for member in batch.members}
    sources: list[GeneratedSource] = []
    headers: list[GeneratedSource] = []
    # cc_library takes no .cu file.
    paths = {n: str(PurePosixPath(n).with_suffix(".cpp")) if n in compiled else n for n in files}
    for name, data in files.items():
        path = f"{root}/{paths[name]}"
        digest = output.write(path, data)
        if name in alone:
            stem = PurePosixPath(name).stem
            sources.append(GeneratedSource(stem, path, digest, "", "generated"))
        else:
            headers.append(GeneratedSource(paths[name], path, digest, "", "generated"))
    for header in sorted({header for batch in batches for header in batch.once}):
        name = f"{_ONCE}/{header}"
        text = f'#pragma once\n#include "{posixpath.relpath(header, posixpath.dirname(name))}"\n'
        digest = output.write(f"{root}/{name}", text)
        headers.append(GeneratedSource(name, f"{root}/{name}", digest, "", "once"))
    for batch in batches:
        path = f"{root}/batches/{batch.name}.cpp"
        digest = output.write(path, batch.source)
        sources.append(GeneratedSource(names[batch.name], path, digest, "", "batch"))
    batch_files = {
        names[batch.name]: (
            *(f"{root}/{_ONCE}/{header}" for header in batch.once),
            *(f"{root}/{paths[name]}" for name in batch.files),
        )
        for batch in batches
    }
    return sources, headers, batch_files


def _relative_includes(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the includes of generated files that are relative to their own directory."""
    for name, data in files.items():
        for included_name, quoted in includes(data.decode("utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), included_name))
            if quoted and path in files:
                yield included_name
