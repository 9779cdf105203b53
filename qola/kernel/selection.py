"""How a manifest selects kernels: by the values of their fields, or one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qola.kernel.config import FieldValue, KernelConfig

EVERYTHING, REQUESTED = -1, -2
"""Indices of filters without a variant: all of a receipt, and requested kernels."""


@dataclass(frozen=True)
class VariantFilter:
    """Selects kernels of a receipt, as a variant of the manifest does.

    Attributes:
        index: index of the variant, or EVERYTHING or REQUESTED.
        place: the variant's place in the manifest, for findings.
        where: permitted values of fields.
        hdims: requested (hdim_q, hdim_v), None for all.
    """

    index: int
    place: str
    receipt: int
    where: Mapping[str, tuple[FieldValue, ...]]
    hdims: tuple[tuple[int, int], ...] | None

    @staticmethod
    def everything(receipt: int) -> VariantFilter:
        """Return the filter that keeps every kernel of a receipt."""
        return VariantFilter(EVERYTHING, f"receipt {receipt}", receipt, {}, None)

    @staticmethod
    def nothing(receipt: int) -> VariantFilter:
        """Return the filter that keeps no kernel of a receipt, for [[kernels]] without variants."""
        return VariantFilter(REQUESTED, f"receipt {receipt}", receipt, {"dtype": ()}, None)


@dataclass(frozen=True)
class RequestedKernel:
    """A kernel that the manifest names by its config, whether CK enumerates it or not.

    Attributes:
        place: place of the name in the manifest, for findings.
    """

    config: KernelConfig
    place: str = field(compare=False)

    @property
    def filter(self) -> VariantFilter:
        """The filter that keeps the kernel."""
        return VariantFilter(REQUESTED, self.place, 0, {}, None)
