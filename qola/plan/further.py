"""Modules beside attention: AITER's sources, and what generators make beside them.

Those that need PyTorch become torch modules as those of attention, without kernel instances.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path, PurePosixPath

from qola.aiter.includes import includes
from qola.aiter.module_kinds import SOURCE_SUFFIXES
from qola.aiter.module_kinds import sources as own_sources
from qola.codegen.asm.script import Generated, generated_files
from qola.codegen.ck.batches import batch_source, included, local_names
from qola.codegen.types import GeneratedSource, KernelSet
from qola.errors import Finding, PlanError
from qola.files import sha256_of_text
from qola.folder import Folder
from qola.plan.generated import GeneratedModule, check_names, copied_sources
from qola.plan.model import PlannedFile
from qola.plan.request import Module, ResolvedRequest

_GUARD = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+once\b|ifndef[ \t]+\w+\s+#[ \t]*define)", re.M)
FOLDER = "generated"
"""Where generated files are, below a module's directory; sources include them from there."""


def generate_further(resolved: ResolvedRequest, module: Module, output: Folder) -> GeneratedModule:
    """Copy a module's sources and run its generators.

    Args:
        output: gets <module>/sources and <module>/generated.

    Raises:
        PlanError: the entry asks for what a plan does not follow, or two sources have one name.
        CodegenError: a generator fails, or makes different files for the archs.
    """
    tree, config, spec = resolved.request.tree, module.config, module.spec
    if config.is_standalone or (module.torch and not config.is_python_module):
        raise PlanError(
            Finding(
                resolved.place(spec, "name"),
                f"{config.name}: {'a program' if config.is_standalone else 'a C++ library'}",
                "a module that Python imports, or whose C functions it calls",
                "remove it from the manifest",
            )
        )
    folder = output.below(spec.name)
    own = copied_sources(tree, module, folder, "")
    made = generated_files(tree, config, resolved.archs)
    sources, headers = _split(made, folder, resolved.request.manifest.batch)
    check_names(spec.name, (*own, *sources))
    # A copy has lost the directory in which it finds headers first.
    beside = {posixpath.dirname(file) for file in own_sources(tree, config, spec.drop_srcs)}
    dirs = dict.fromkeys((*config.include_dirs, *sorted(beside)))
    kernels = KernelSet(
        kernels=(),
        sources=(*own, *sources),
        headers=tuple(dict.fromkeys((*made.files, *_relative(made.files)))),
        tables=headers,
        inputs=made.inputs,
    )
    config = replace(config, include_dirs=tuple(dirs))
    return GeneratedModule(**{**vars(module), "config": config, "kernels": kernels})


def own_files(module: GeneratedModule, folder: Folder) -> dict[str, str]:
    """Return the texts that decide what a module includes, by their path below its directory."""
    # A batch only includes what is beside it.
    every = (*module.kernels.sources, *module.kernels.tables)
    return {found.file: folder.text(found.file) for found in every if found.role != "batch"}


def sources_of(module: GeneratedModule) -> tuple[PlannedFile, ...]:
    """Return what is compiled of a module."""
    return tuple(
        PlannedFile(Path(source.name).stem, f"{module.spec.name}/{source.file}", source.sha256)
        for source in module.kernels.sources
    )


def _split(
    made: Generated, folder: Folder, size: int
) -> tuple[tuple[GeneratedSource, ...], tuple[GeneratedSource, ...]]:
    """Write generated files; return what is compiled, and what is included.

    Sources that do not disturb each other are compiled together, as kernel instances are.
    """
    texts = {name: data.decode("utf-8") for name, data in made.files.items() if _is_source(name)}
    # Of a header without a guard, two in one compile are an error.
    unguarded = frozenset(
        name
        for name, data in made.files.items()
        if not _is_source(name) and not _GUARD.search(data.decode("utf-8"))
    )
    batches = dict(_batches(texts, size, unguarded))
    batched_names = {member for members in batches.values() for member in members}
    sources: list[GeneratedSource] = []
    headers: list[GeneratedSource] = []
    for name, data in made.files.items():
        # cc_library takes no .cu file.
        path = str(PurePosixPath(name).with_suffix(".cpp")) if name in texts else name
        digest = folder.write(f"{FOLDER}/{path}", data)
        source = GeneratedSource(path, f"{FOLDER}/{path}", digest, "", "generated")
        (sources if name in texts and name not in batched_names else headers).append(source)
    for batch, members in batches.items():
        own = [texts[member] for member in members]
        names = local_names(own[0]) or ()
        stems = [str(PurePosixPath(member).with_suffix("")) for member in members]
        text = batch_source(stems, included(own), names)
        path = f"{FOLDER}/batches/{batch}.cpp"
        sources.append(GeneratedSource(f"{batch}.cpp", path, folder.write(path, text), "", "batch"))
    return tuple(sources), tuple(headers)


def _relative(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the includes by which generated files lead to others from where they are."""
    for name, data in files.items():
        for wanted, quoted in includes(data.decode("utf-8")):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), wanted))
            if quoted and beside in files:
                yield wanted


def _is_source(name: str) -> bool:
    return name.endswith(SOURCE_SUFFIXES)


def _batches(
    texts: Mapping[str, str], size: int, unguarded: Collection[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the name and the members of each batch of sources that include the same.

    Args:
        unguarded: generated headers that cannot be included twice.
    """

    def alike(name: str) -> tuple[str, ...]:
        read = {posixpath.normpath(found) for found, _ in includes(texts[name])}
        read |= {posixpath.normpath(posixpath.join(posixpath.dirname(name), f)) for f in read}
        names = local_names(texts[name]) if size > 1 and not read & {*unguarded} else None
        return () if names is None else ("\n".join(included([texts[name]])), *names)

    for key, group in groupby(sorted(texts, key=lambda name: (alike(name), name)), alike):
        alone = list(group)
        for start in range(0, len(alone), size) if key else ():
            members = alone[start : start + size]
            if len(members) > 1:
                digest = sha256_of_text("\n".join(members))[:12]
                yield f"batch_{len(members)}_{digest}", members
