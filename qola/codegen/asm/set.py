"""The assembly path of a library, for trees of both forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qola.codegen.types import CodeObject, GeneratedSource, KernelInstance
from qola.errors import Finding


@dataclass(frozen=True)
class AsmSet:
    """The assembly path of one module.

    Attributes:
        archs: architectures with assembly kernels, sorted; the path is off for the others.
        sources: host code with the v3 dispatch of each arch in `GeneratedSource.archs`.
        tables: C++ tables that the module's sources include, in later trees.
        kernels: helper kernels for the problems of the variants, by name.
        stubs: at most one source, which defines the other helpers that a dispatch names.
        served: by `index` of the variant, its head dims for which every requested architecture has
            assembly kernels; a variant that no kernel serves is left out.
        findings: warnings: v3 is off, or tables and files do not match.
        inputs: files of the tree from which it was generated, except code objects and generators.
    """

    archs: tuple[str, ...] = ()
    sources: tuple[GeneratedSource, ...] = ()
    tables: tuple[GeneratedSource, ...] = ()
    kernels: tuple[KernelInstance, ...] = ()
    stubs: tuple[GeneratedSource, ...] = ()
    code_objects: tuple[CodeObject, ...] = ()
    served: Mapping[int, frozenset[tuple[int, int]]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    inputs: tuple[str, ...] = ()


def not_embedded(files: Iterable[str], folder: str, tables: str) -> Finding:
    """Warn of code objects that the tables of their folder do not name."""
    return Finding(
        place=folder,
        found=f"{listed(files, folder)}, which no row names: not embedded",
        expected=f"a row for each .co file in {tables}",
        severity="warning",
    )


def listed(files: Iterable[str], folder: str) -> str:
    """Format the names and the number of code objects for a message."""
    names = sorted(file.removeprefix(f"{folder}/") for file in files)
    return f"{len(names)} code objects ({', '.join(names)})" if len(names) > 1 else names[0]
