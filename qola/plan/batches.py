"""Which kernel instances are compiled together: how batches are cut.

A batch is an entry of every cache, so what is in it must not change with every change of a
manifest. Kernel instances stand in an order of their own, those next to each other that share most
templates, and batches end where the kernel instances say so, not where their number does: two
manifests that want the same of a family have the same batches of it, if they are enough to fill
one, and a variant more changes few batches besides those into which its kernels fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from qola.codegen.types import KernelInstance
from qola.files import sha256_of_text

FAMILY = ("role", "dtype", "tile", "pipeline", "trload")
"""What kernel instances of a family have in common. Instances that differ in mask, bias, dropout,
padding or mode share most of their templates; those of another tile or pipeline share half of them
(measured, docs/internals/batches.md)."""


def family(kernel: KernelInstance) -> tuple[str, ...]:
    """Return what templates depend on most; () where nothing is known of the kernel instance."""
    fields = dict(kernel.fields)
    return (kernel.role, *(str(fields.get(name)) for name in FAMILY[1:])) if fields else ()


def in_order(kernels: Iterable[KernelInstance]) -> list[KernelInstance]:
    """Return kernel instances in the order in which they are cut: a variant's are neighbours."""

    def key(kernel: KernelInstance) -> tuple[tuple[str, ...], list[str], str]:
        # Padding last: a variant asks for each of its values.
        asked = [
            f"{name}={value}" for name, value in kernel.fields.items() if not name.endswith("pad")
        ]
        return family(kernel), asked, kernel.name

    return sorted(kernels, key=key)


def cut(kernels: Iterable[KernelInstance], size: int) -> Iterator[tuple[KernelInstance, ...]]:
    """Yield the batches of kernel instances that `in_order` returned, of `size` at most.

    A family that has half of that or more is cut on its own, so that others do not move its cuts;
    those that have less are cut together.
    """
    enough = max(2, size // 2)
    few: list[KernelInstance] = []
    for _, alike in groupby(kernels, family):
        members = list(alike)
        if len(members) < enough:
            few += members
        else:
            yield from _cut(members, size, enough)
    yield from _cut(few, size, enough)


def _cut(
    kernels: Sequence[KernelInstance], size: int, enough: int
) -> Iterator[tuple[KernelInstance, ...]]:
    """Yield batches that end, once they have enough, at a kernel instance that says so.

    That is one whose family ends there, or whose name's digest says so, one in `enough`.
    """
    batch: list[KernelInstance] = []
    for left, kernel in zip(range(len(kernels) - 1, -1, -1), kernels, strict=True):
        batch.append(kernel)
        ends = not left or family(kernels[-left]) != family(kernel)
        chosen = ends or int(sha256_of_text(kernel.name)[:8], 16) % enough == 0
        # Those that are left make no batch of their own.
        on = 0 < left < enough and len(batch) + left <= size
        if not left or len(batch) == size or (chosen and len(batch) >= enough and not on):
            yield tuple(batch)
            batch = []


def batch_name(batch: Sequence[KernelInstance]) -> str:
    """Return a name that stands for these kernel instances and no others."""
    first = batch[0]
    if len(batch) == 1:
        return first.name
    dtype = dict(first.fields).get("dtype")
    digest = sha256_of_text("\n".join(kernel.name for kernel in batch))
    return "_".join([first.role, *([str(dtype)] if dtype else []), str(len(batch)), digest[:12]])
