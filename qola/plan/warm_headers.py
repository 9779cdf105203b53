"""Decides which families of kernel instances get a warm precompiled header.

The decision must not depend on what a manifest wants of a family: the header is an input of every
object of the family, so a variant more would otherwise recompile kernels that are there already.
It is made for the family as the receipts in use have it; see docs/internals/split-compilation.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from qola.codegen.types import KernelFamily

POLICY = Path(__file__).with_name("warm_headers.json")
"""What headers cost and save, by role. A change here changes plans, and the keys of kernels."""

WANTED = 4
"""How many kernel instances of a family a manifest may be counted on to want: the families of
manifests/quickstart.toml have 2 to 14, most of them 4. A header that needs all 12 of a receipt to
pay would be made in vain nearly always."""


@dataclass(frozen=True)
class PrecompileCost:
    """What a warm precompiled header costs and saves, for one role of kernel instances.

    Attributes:
        making_seconds: CPU seconds that making the header takes, upon that of the headers.
        headers_seconds: CPU seconds of a device pass with a header that has no templates.
        warm_seconds: CPU seconds of a device pass with the warm header.
    """

    making_seconds: float
    headers_seconds: float
    warm_seconds: float

    def pays(self, size: int) -> bool:
        """Whether a header for a family of `size` kernel instances saves more than it costs."""
        saved = self.headers_seconds - self.warm_seconds
        return min(size, WANTED) * saved > self.making_seconds


def load_policy(path: Path = POLICY) -> dict[tuple[str, str], PrecompileCost]:
    """Return measured costs by direction and role; the file is qola's own."""
    return {
        (entry["direction"], entry["role"]): PrecompileCost(
            *(float(entry[field.name]) for field in fields(PrecompileCost))
        )
        for entry in json.loads(path.read_text(encoding="utf-8"))["roles"]
    }


def warm_families(
    families: Iterable[KernelFamily], costs: Mapping[tuple[str, str], PrecompileCost]
) -> dict[str, KernelFamily]:
    """Return the families that get a warm header, by name.

    Args:
        families: all families of the wanted kernel instances.
        costs: measured costs by direction and role; a role that is missing gets none.
    """
    return {
        family.name: family
        for family in families
        if (cost := costs.get((family.direction, family.role))) and cost.pays(family.size)
    }
