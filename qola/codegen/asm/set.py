"""The assembly path of a library, for trees of both forms."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from qola.aiter.tree import AiterTree
from qola.codegen.types import CodeObject, GeneratedSource, KernelInstance
from qola_base.errors import Finding
from qola_base.files import sha256_of


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


def code_object(tree: AiterTree, file: str, arch: str) -> CodeObject:
    """Describe a file below the tree's hsa/ as a code object to embed."""
    path = tree.root / file
    key = posixpath.join("hsa", posixpath.relpath(file, tree.hsa_dir))
    return CodeObject(key, file, arch, sha256_of(path), path.stat().st_size)


def co_files(tree: AiterTree, folder: str) -> list[str]:
    """Return the code objects below a folder, tree-relative, sorted."""
    found = sorted((tree.root / folder).rglob("*.co"))
    return [path.relative_to(tree.root).as_posix() for path in found]


def compare_files(
    tree: AiterTree,
    folder: str,
    tables: Sequence[str],
    named: set[str],
    lost: Iterable[str] | None = None,
    effect: str = "",
) -> Iterator[Finding]:
    """Warn of rows without a code object, and of code objects in the folder without a row.

    Args:
        named: the code objects of all rows.
        lost: missing code objects of the used rows, with the `effect` of missing ones; None for
            those of `named`.
    """
    present = co_files(tree, folder)
    place = ", ".join(tables) if len(tables) < 3 else f"tables in {folder}"
    if files := sorted(named.difference(present) if lost is None else lost):
        yield Finding(
            place,
            f"rows for {_listed(files, folder)}, whose files are missing{effect}",
            "a .co file for each row",
            severity="warning",
        )
    if files := [file for file in present if file not in named]:
        yield Finding(
            folder,
            f"{_listed(files, folder)}, which no row names: not embedded",
            f"a row for each .co file in {place}",
            severity="warning",
        )


def _listed(files: Sequence[str], folder: str) -> str:
    names = [file.removeprefix(f"{folder}/") for file in files]
    return f"{len(names)} code objects ({', '.join(names)})" if len(names) > 1 else names[0]
