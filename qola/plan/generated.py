"""What a module's generators produce, and the sources that AITER's own entry names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, ENTRIES, attention_of
from qola.aiter.tree import AiterTree
from qola.codegen.asm.domain import domain_header
from qola.codegen.generate import generate
from qola.codegen.types import GeneratedSource, KernelSet, Selection
from qola.errors import CodegenError, Finding, PlanError
from qola.folder import Folder
from qola.plan.model import PlannedFile
from qola.plan.request import Module, ResolvedRequest

ASM_DOMAIN = "qola_asm_domain.h"
"""Generated header that tells which problems the manifest gives to assembly kernels."""


@dataclass(frozen=True, kw_only=True)
class GeneratedModule(Module):
    """A module with what its generators produced.

    Attributes:
        kernels: that, and the sources of AITER's own entry.
    """

    kernels: KernelSet

    @property
    def tree_files(self) -> tuple[str, ...]:
        """Files of the tree that it is made of, beside headers and generators."""
        objects = (code_object.file for code_object in self.kernels.code_objects)
        return (*self.config.srcs, *objects, *self.kernels.inputs)

    @property
    def generated_files(self) -> tuple[PlannedFile, ...]:
        """What its sources include of generated files."""
        return tuple(
            PlannedFile(table.name, f"{self.spec.name}/{table.file}", table.sha256)
            for table in self.kernels.tables
        )


def generate_module(
    resolved: ResolvedRequest, module: Module, output: Folder, *, explain: bool = False
) -> GeneratedModule:
    """Run a module's generators.

    Args:
        output: gets <module>/kernels, <module>/dispatch, <module>/sources and <module>/include.
        explain: say of every kernel of the receipts in use why it is in or not.

    Raises:
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
        PlanError: two sources have one name, or one is outside of the tree.
    """
    request, spec = resolved.request, module.spec
    selection = Selection(
        receipt=spec.receipt,
        variants=module.variants,
        drop_directions=frozenset(spec.drop_directions),
        # Assembly kernels take problems before any dispatch: not those of kernels by themselves.
        asm=(spec.hsa_subdirs is None or bool(spec.hsa_subdirs))
        and (bool(module.variants) or not module.requested),
        embedded=spec.hsa_subdirs,
        drop_srcs=frozenset(spec.drop_srcs),
        level=request.spec.require,
        keep_unreachable=request.manifest.keep_unreachable,
        add_directions=frozenset(spec.add_directions),
        kernels=module.requested,
    )
    folder = output.below(spec.name)

    def placed(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        return tuple(replace(f, place=_place(resolved, module, f.place)) for f in findings)

    try:
        kernels = generate(
            request.tree,
            module.config,
            selection,
            resolved.archs,
            folder,
            explain=explain,
            cached=request.answers,
        )
    except CodegenError as error:
        raise CodegenError(placed(error.findings), error.title) from None
    own = copied_sources(request.tree, module, folder, attention_of(module.config.name).direction)
    # Of those that generators write, there is one for each set of archs.
    check_names(spec.name, (*own, *{s.name: s for s in kernels.sources}.values()))
    if kernels.code_objects and not kernels.tables and module.config.name in ATTENTION:
        header = domain_header(module.config.name, selection.variants)
        folder.write(f"include/{ASM_DOMAIN}", header)
    kernels = replace(kernels, sources=kernels.sources + own, warnings=placed(kernels.warnings))
    return GeneratedModule(**{**vars(module), "kernels": kernels})


def check_names(module: str, sources: Iterable[GeneratedSource]) -> None:
    """Refuse two sources of one name.

    Raises:
        PlanError: naming them.
    """
    places: dict[str, list[str]] = {}
    for source in sources:
        places.setdefault(Path(source.name).stem, []).append(source.file)
    twice = [name for name, files in places.items() if len(files) > 1]
    if twice:
        raise PlanError(
            Finding(
                f"{module}.srcs",
                f"{', '.join(sorted(twice))}: two sources of one name",
                "sources whose names, without suffix, differ from each other and from those "
                "that generators write",
                "drop_srcs leaves one out",
            )
        )


def _place(resolved: ResolvedRequest, module: Module, place: str) -> str:
    """The place of a generator's finding, with the manifest's file where it means the manifest."""
    if place in ("drop_directions", "add_directions"):
        return resolved.place(module.spec, place)
    return f"{resolved.request.manifest.file} {place}" if place.startswith("[[") else place


def _needs_ck(text: str, main: str) -> bool:
    """Whether a source is an entry of a direction that has kernels of Composable Kernel alone."""
    names = (name for direction, name in ENTRIES.items() if direction != main)
    return re.search(rf"^\s*(?:float\s+)?(?:{'|'.join(names)})\(", text, re.MULTILINE) is not None


def copied_sources(
    tree: AiterTree, module: Module, folder: Folder, direction: str
) -> tuple[GeneratedSource, ...]:
    """Copy the sources AITER's entry names, since cc_library takes no .cu file.

    Args:
        direction: of the module's assembly kernels, "" for none.

    Raises:
        PlanError: a source outside of the tree.
    """
    spec = module.spec
    for src in module.config.srcs:
        # By its words: a local tree's repository is made of links to it.
        if posixpath.normpath(src).startswith(("/", "../")):
            raise PlanError(
                Finding(f"{spec.name}.srcs", src, "a source within the AITER tree", f"remove {src}")
            )
    sources = []
    for file in module_kinds.sources(tree, module.config, spec.drop_srcs):
        name = f"{Path(file).stem}.cpp"
        text = (tree.root / file).read_text(encoding="utf-8")
        if module.config.without_ck and _needs_ck(text, direction):
            continue
        digest = folder.write(f"sources/{name}", text)
        sources.append(GeneratedSource(name, f"sources/{name}", digest, direction, "entry"))
    return tuple(sources)
