"""What the assembly path of a library consists of, whichever form the tree has it in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qola.codegen.types import CodeObject, GeneratedSource, KernelInstance
from qola.errors import Finding


@dataclass(frozen=True)
class AsmSet:
    """The assembly path of one module.

    Attributes:
        archs: those with assembly kernels, sorted; for the others, and with none, the path is off.
        sources: the v3 dispatch of each of them, host code; `archs` holds the one it is for.
        tables: C++ tables that the module's own sources include, in trees that have them.
        kernels: helper kernels that the variants' problems need, by name.
        stubs: one source that defines the other helpers a dispatch names, or none.
        served: the head dims, as a variant names them, that every architecture asked for has
            assembly kernels for, by `index` of the variant; one that nothing serves is left out.
        findings: warnings: why v3 is off, what the tables and the files lack on either side.
        inputs: files of the tree that decided it, beside code objects and generators.
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
    """Return the warning of code objects in a folder that its tables do not name."""
    return Finding(
        place=folder,
        found=f"{listed(files, folder)}, which no row names: not embedded",
        expected=f"a row for each .co file in {tables}",
        severity="warning",
    )


def listed(files: Iterable[str], folder: str) -> str:
    """Return the names of code objects of a folder for a message, with their number."""
    names = sorted(file.removeprefix(f"{folder}/") for file in files)
    return f"{len(names)} code objects ({', '.join(names)})" if len(names) > 1 else names[0]
