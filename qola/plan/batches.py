"""Cuts kernel instances, and sources of generators, into batches that are compiled together.

A batch is a cache entry, so a change of a manifest must change few batches. Kernel instances have a
fixed order, in which neighbours share most templates, and their names decide where batches end.

Sources that generators of GEMM, MoE and norm modules write stay as they are. A generated header
without an include guard, such as that of a GEMM's tile, is included once: a batch finds a header of
the same name first, in another directory, that includes it under `#pragma once`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import PurePosixPath

from qola.aiter.includes import includes
from qola.aiter.module_kinds import SOURCE_SUFFIXES
from qola.codegen.ck.batches import (
    batch_source,
    included,
    instantiating_macros,
    local_names,
    only_calls_name,
)
from qola.codegen.types import KernelInstance
from qola.common.folder import Folder
from qola.plan.model import PlannedBatch
from qola_base.files import sha256_of_text

_Names = tuple[str, ...]

FAMILY = ("role", "dtype", "tile", "pipeline", "trload")
"""The common properties of a family's kernel instances. Instances that differ in mask, bias,
dropout, padding or mode share most of their templates; those of another tile or pipeline share half
of them (measured, docs/internals/batches.md)."""

_PIPELINE_BATCH = 8
"""Number of kernel instances of a pipeline's small families that fill a batch without another
pipeline's. A variant often adds a pipeline."""


_GUARD = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+once\b|ifndef[ \t]+\w+\s+#[ \t]*define)", re.M)

_GeneratedKey = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Includes, local names, and headers without a guard that must be the only ones in a batch."""


def write_batches(
    sources: Mapping[int, tuple[KernelInstance, str]],
    *,
    size: int,
    named: bool,
    folder: Folder,
    module: str,
) -> Iterator[PlannedBatch]:
    """Write the batches of a unit.

    Args:
        sources: the unit's kernel instances with the texts of their sources, by index in the plan.
        size: maximum number of kernel instances in a batch.
        named: result of `only_defines_name` for all headers that the sources include.
        folder: the sources are written to its <module>/kernels/batches.
    """
    index = {kernel.name: number for number, (kernel, _) in sources.items()}
    compatible: dict[tuple[_Names, _Names, _Names, bool], list[KernelInstance]] = {}
    for kernel, text in sources.values():
        names = local_names(text) if size > 1 else None
        if names is not None:
            key = (kernel.archs, tuple(included([text])), names, only_calls_name(text))
            compatible.setdefault(key, []).append(kernel)
    for (_, heads, names, own), kernels in compatible.items():
        for batch in cut(in_order(kernels), size):
            if len(batch) > 1:
                members = [kernel.name for kernel in batch]
                name = batch_name(batch)
                file = f"{module}/kernels/batches/{name}.cpp"
                text = batch_source(members, heads, names, named=named and own)
                digest = folder.write(file, text)
                yield PlannedBatch(name, tuple(index[member] for member in members), file, digest)


def _family(kernel: KernelInstance) -> tuple[str, ...]:
    """Return the values of `FAMILY`; () if the kernel instance has no fields."""
    if not kernel.fields:
        return ()
    return (kernel.role, *(str(kernel.fields.get(name)) for name in FAMILY[1:]))


def _pipeline(kernel: KernelInstance) -> tuple[str, ...]:
    """Return role, dtype and pipeline, which is "" if the kernel instance has none."""
    return (kernel.role, *(str(kernel.fields.get(name, "")) for name in ("dtype", "pipeline")))


def in_order(kernels: Iterable[KernelInstance]) -> list[KernelInstance]:
    """Sort kernel instances for `cut`: those of a variant are neighbours."""

    def key(kernel: KernelInstance) -> tuple[tuple[str, ...], list[str], str]:
        # Padding is in the name only: a variant selects all of its values.
        fields = [
            f"{name}={value}" for name, value in kernel.fields.items() if not name.endswith("pad")
        ]
        return _family(kernel), fields, kernel.name

    return sorted(kernels, key=key)


def cut(kernels: Iterable[KernelInstance], size: int) -> Iterator[tuple[KernelInstance, ...]]:
    """Yield the batches of sorted kernel instances, of `size` at most.

    A family with half of `size` or more is cut separately, so that other families do not move its
    cuts. Smaller families are cut together, sorted by pipeline.
    """
    enough = max(2, size // 2)
    few: list[KernelInstance] = []
    for _, group in groupby(kernels, _family):
        members = list(group)
        if len(members) < enough:
            few += members
        else:
            yield from _cut(members, size, enough)
    yield from _cut(sorted(few, key=_pipeline), size, enough)


def _cut(
    kernels: Sequence[KernelInstance], size: int, enough: int
) -> Iterator[tuple[KernelInstance, ...]]:
    """Yield batches that end, once they have `enough`, at a cut.

    A cut is the end of a family, or a kernel instance whose name's digest is divisible by `enough`.
    At the end of a pipeline, `_PIPELINE_BATCH` are enough.
    """
    batch: list[KernelInstance] = []
    for left, kernel in zip(range(len(kernels) - 1, -1, -1), kernels, strict=True):
        batch.append(kernel)
        ends = not left or _family(kernels[-left]) != _family(kernel)
        is_cut = ends or int(sha256_of_text(kernel.name)[:8], 16) % enough == 0
        pipeline = _pipeline(kernel)
        ends_pipeline = pipeline[-1] and left and _pipeline(kernels[-left]) != pipeline
        needed = min(enough, _PIPELINE_BATCH) if ends_pipeline else enough
        # Too few for a batch of their own are added to this one.
        takes_rest = 0 < left < needed and len(batch) + left <= size
        if not left or len(batch) == size or (is_cut and len(batch) >= needed and not takes_rest):
            yield tuple(batch)
            batch = []


def batch_name(batch: Sequence[KernelInstance]) -> str:
    """Return a name that is unique for these kernel instances."""
    first = batch[0]
    if len(batch) == 1:
        return first.name
    dtype = first.fields.get("dtype")
    digest = sha256_of_text("\n".join(kernel.name for kernel in batch))
    return "_".join([first.role, *([str(dtype)] if dtype else []), str(len(batch)), digest[:12]])


@dataclass(frozen=True)
class GeneratedBatch:
    """Generated sources that are compiled together.

    Attributes:
        members: names of the sources.
        once: generated headers that they include, and that have no guard.
        files: the generated files that the compile reads: members and headers.
        source: text of the batch's source, in a directory next to the generated files.
    """

    name: str
    members: tuple[str, ...]
    once: tuple[str, ...]
    files: tuple[str, ...]
    source: str


def cut_generated(
    files: Mapping[str, str],
    sources: Collection[str],
    size: int,
    tree_headers: Callable[[Iterable[str]], Iterable[str]],
) -> Iterator[GeneratedBatch]:
    """Yield the batches, of `size` at most, of sources without conflicting names.

    Args:
        files: text of each generated file by name.
        sources: names of the files that may be compiled together.
        tree_headers: function from included names to the texts of the tree's headers that the
            includes reach.
    """
    if size < 2:
        return

    @cache
    def macros_of(roots: tuple[str, ...]) -> frozenset[str]:
        return instantiating_macros(tree_headers(roots))

    @cache
    def tree_includes(roots: tuple[str, ...]) -> frozenset[str]:
        return frozenset(name for text in tree_headers(roots) for name, _ in includes(text))

    form = _BatchForm(files, macros_of, tree_includes)
    keys = {name: key for name in sources if (key := form.key(name)) is not None}
    for (_, names, _), group in groupby(sorted(keys, key=lambda n: (keys[n], n)), keys.__getitem__):
        once = {name: form.once(name) for name in group}
        for members in _cut_by_header(once, size):
            if len(members) > 1:
                texts = [files[name] for name in members]
                stems = [str(PurePosixPath(name).with_suffix("")) for name in members]
                yield GeneratedBatch(
                    batch_name([_instance(name) for name in members]),
                    tuple(members),
                    tuple(dict.fromkeys(header for name in members for header in once[name])),
                    form.reached(members),
                    batch_source(stems, included(texts), names),
                )


def _cut_by_header(once: Mapping[str, Sequence[str]], size: int) -> Iterator[Sequence[str]]:
    """Yield the members of batches of sources with the same key.

    Sources with the same headers without a guard are a family, as those of a GEMM's tile. So a
    further tile in a tuning table leaves the batches of other tiles unchanged.
    """
    names = list(once)
    if not any(once.values()):
        yield from (names[start : start + size] for start in range(0, len(names), size))
        return
    for batch in cut(in_order(_instance(name, *headers) for name, headers in once.items()), size):
        yield [instance.name for instance in batch]


def _instance(name: str, *once: str) -> KernelInstance:
    fields = {"tile": " ".join(once)} if once else {}
    return KernelInstance(name, "", "batch", (), "", fields)


@dataclass(frozen=True)
class _BatchForm:
    """Which generated sources can be in a batch.

    Attributes:
        files: as for `cut_generated`.
        macros_of: function from included names to `instantiating_macros` of the tree's headers.
        tree_includes: function from included names to those in the tree's headers.
    """

    files: Mapping[str, str]
    macros_of: Callable[[tuple[str, ...]], frozenset[str]]
    tree_includes: Callable[[tuple[str, ...]], frozenset[str]]

    def key(self, source: str) -> _GeneratedKey | None:
        """Return the properties that the sources of a batch share; None for a separate compile."""
        text = self.files[source]
        once = self.once(source)
        if any(self._relative(file) & self._unguarded.keys() for file in (source, *once)) or any(
            self.once(header) for header in once
        ):
            return None
        names = local_names(text)
        if names is None:
            names = local_names(text, self.macros_of(self._roots(source)))
        if names is None:
            return None
        others = tuple(name for name in included([text]) if name.strip('<">') not in once)
        return others, names, tuple(header for header in once if not self._unguarded[header])

    def once(self, file: str) -> tuple[str, ...]:
        """Return the headers without a guard that a file includes by their names."""
        return tuple(name for name in self._roots(file) if name in self._unguarded)

    def reached(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Return sources and the generated files that they include, also by headers of the tree."""
        found: set[str] = set()
        pending = [*sources]
        while pending:
            file = pending.pop()
            if file not in found:
                found.add(file)
                roots = self._roots(file)
                names = {*self._relative(file), *roots, *self.tree_includes(roots)}
                pending += names & self.files.keys()
        return tuple(sorted(found))

    def _roots(self, file: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(posixpath.normpath(n) for n, _ in includes(self.files[file])))

    def _relative(self, file: str) -> set[str]:
        """Return the paths that a file's includes have relative to its own directory."""
        folder = posixpath.dirname(file)
        return {posixpath.normpath(posixpath.join(folder, name)) for name in self._roots(file)}

    @cached_property
    def _unguarded(self) -> Mapping[str, bool]:
        """Each generated header without a guard: whether a batch may include others, too.

        It may if no two of them declare the same name.
        """
        names = {
            name: local_names(text)
            for name, text in self.files.items()
            if not name.endswith(SOURCE_SUFFIXES) and not _GUARD.search(text)
        }
        count = Counter(name for found in names.values() for name in found or ())
        return {
            header: found is not None and all(count[name] == 1 for name in found)
            for header, found in names.items()
        }
