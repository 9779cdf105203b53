"""docs/reference/kernel-rules.md: the rules of kernel configs, and what there is for each arch."""

from __future__ import annotations

from qola.kernel.archs import pinned
from qola.kernel.rules import RULES

_HEAD = """\
# Rules of kernels

A [KernelConfig](../guide/python.md#configs-and-rules) must satisfy these rules. `validate` checks
them in this order. They are tables and filters of the generators, conditions of the dispatch, and
sizes whose remainders templates drop. The compiler reports Composable Kernel's static assertions.
A source is a file of Composable Kernel, and text in it. `./bazelw run //tools/docs:update` writes
this page.

| Rule | Because | Source |
| --- | --- | --- |
"""
_ARCHS = """
## Kernels of Composable Kernel

Data types, head dimensions of Q and pipelines, by family and by Composable Kernel's name of the
arch. The tiles of the pinned Composable Kernel are in [archs.json](../../qola/kernel/archs.json).

| Family | Archs | Data types | Head dimensions | Pipelines |
| --- | --- | --- | --- | --- |
"""


def render() -> str:
    """Return the page."""
    rules = [
        f"| `{rule.name}` | {rule.reason} | "
        f"{rule.source[0].rpartition('/')[2]}: `{rule.source[1]}` |"
        for rule in RULES.values()
    ]
    archs = pinned()
    offers = []
    for family, arch in dict.fromkeys((offer.family, offer.arch) for offer in archs.offers):
        of = archs.select(family, arch)
        hdims = sorted({size for offer in of for size in offer.hdims})
        pipelines = sorted({name for offer in of for name in offer.pipelines})
        words = (", ".join(map(str, all_)) for all_ in ([o.dtype for o in of], hdims, pipelines))
        offers.append(f"| {family} | {arch or 'any'} | {' | '.join(words)} |")
    return _HEAD + "\n".join(rules) + "\n" + _ARCHS + "\n".join(offers) + "\n"
