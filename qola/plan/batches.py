"""Cuts kernel instances into batches that are compiled together.

A batch is a cache entry, so a change of a manifest must change few batches. Kernel instances have a
fixed order, in which neighbours share most templates, and their names decide where batches end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from qola.codegen.ck.batches import batch_source, included, local_names, only_calls_name
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
    for (_, includes, names, own), kernels in compatible.items():
        for batch in cut(in_order(kernels), size):
            if len(batch) > 1:
                members = [kernel.name for kernel in batch]
                name = batch_name(batch)
                file = f"{module}/kernels/batches/{name}.cpp"
                text = batch_source(members, includes, names, named=named and own)
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
