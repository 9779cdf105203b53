"""Cuts the sources that generators of GEMM, MoE and norm modules write into batches.

The files stay as the generators wrote them. A generated header without an include guard, such as
that of a GEMM's tile, is included once: a batch finds a header of the same name first, in another
directory, that includes it under `#pragma once`.
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
from qola.codegen.ck.batches import batch_source, included, instantiating_macros, local_names
from qola.codegen.types import KernelInstance
from qola.plan.batches import batch_name, cut, in_order

_GUARD = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+once\b|ifndef[ \t]+\w+\s+#[ \t]*define)", re.M)

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Includes, local names, and headers without a guard that must be the only ones in a batch."""


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

    form = _Form(files, macros_of, tree_includes)
    keys = {name: key for name in sources if (key := form.key(name)) is not None}
    for (_, names, _), group in groupby(sorted(keys, key=lambda n: (keys[n], n)), keys.__getitem__):
        once = {name: form.once(name) for name in group}
        for members in _cut(once, size):
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


def _cut(once: Mapping[str, Sequence[str]], size: int) -> Iterator[Sequence[str]]:
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
class _Form:
    """Which generated sources can be in a batch.

    Attributes:
        files: as for `cut_generated`.
        macros_of: function from included names to `instantiating_macros` of the tree's headers.
        tree_includes: function from included names to those in the tree's headers.
    """

    files: Mapping[str, str]
    macros_of: Callable[[tuple[str, ...]], frozenset[str]]
    tree_includes: Callable[[tuple[str, ...]], frozenset[str]]

    def key(self, source: str) -> _Key | None:
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
