"""Selects kernels by variants and emulated receipts: by their fields, never by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qola.codegen.ck.receipts import Rules
from qola.codegen.types import Bucket, FieldValue

if TYPE_CHECKING:
    from qola.manifest.types import BwdVariant, FwdVariant

#: Values of missing fields: split-KV kernels have no dropout, older CKs no sink. A kernel serves
#: every value of any other missing field.
WITHOUT = {"dropout": False, "skip": False, "sink": False, "squant": False, "logits": False}

_FWD_DIMENSIONS = ("dtype", "bias", "mask", "lse", "dropout", "skip", "sink", "mode")
_BWD_DIMENSIONS = ("dtype", "bias", "dbias", "mask", "dropout", "deterministic", "mode")

EVERYTHING, REQUESTED = -1, -2
"""Indices of filters without a variant: all of a receipt, and requested kernels."""


@dataclass(frozen=True)
class VariantFilter:
    """Selects kernels of a receipt, as a variant of the manifest does.

    Attributes:
        index: index of the variant, or EVERYTHING or REQUESTED.
        label: the place in the manifest, for messages.
        where: permitted values of fields.
        hdims: requested (hdim_q, hdim_v), None for all.
    """

    index: int
    label: str
    receipt: int
    where: Mapping[str, tuple[FieldValue, ...]]
    hdims: tuple[Bucket, ...] | None

    @staticmethod
    def from_variant(variant: FwdVariant | BwdVariant, default_receipt: int) -> VariantFilter:
        """Return the filter of a variant, which may name a receipt of its own."""
        names = _BWD_DIMENSIONS if hasattr(variant, "deterministic") else _FWD_DIMENSIONS
        values = {name: getattr(variant, name) for name in names}
        return VariantFilter(
            index=variant.index,
            label=variant.label,
            receipt=default_receipt if variant.receipt is None else variant.receipt,
            where={name: tuple(allowed) for name, allowed in values.items() if allowed is not None},
            hdims=None if variant.hdim is None else tuple(variant.hdim),
        )

    @staticmethod
    def everything(receipt: int) -> VariantFilter:
        """Return the filter that keeps every kernel of a receipt."""
        return VariantFilter(EVERYTHING, f"receipt {receipt}", receipt, {}, None)

    @staticmethod
    def nothing(receipt: int) -> VariantFilter:
        """Return the filter that keeps no kernel of a receipt, for [[kernels]] without variants."""
        return VariantFilter(REQUESTED, f"receipt {receipt}", receipt, {"dtype": ()}, None)


def mismatches(
    where: Mapping[str, Sequence[FieldValue]], fields: Mapping[str, FieldValue]
) -> list[str]:
    """Return the names in `where` whose allowed values lack the kernel's value."""
    return [
        name
        for name, allowed in where.items()
        if (name in fields or name in WITHOUT)
        and fields.get(name, WITHOUT.get(name)) not in allowed
    ]


def broken_rule(rules: Rules | None, receipt: int, fields: Mapping[str, FieldValue]) -> str:
    """Return the rule of an emulated receipt that drops a kernel, "" if it is kept."""
    if rules is None:
        return f"receipt {receipt}: no kernels of this direction"
    failing = mismatches(dict(rules), fields)
    if not failing:
        return ""
    allowed = dict(rules)[failing[0]]
    return f"receipt {receipt}: {failing[0]} must be {' or '.join(map(show, allowed))}"


def show(value: FieldValue) -> str:
    """Format the value of a field for messages."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def takes(size: Bucket, steps: Bucket) -> bool:
    """Whether head dims are multiples of positive steps, and not of negative ones."""
    return all((part % step == 0) == (step > 0) for part, step in zip(size, steps, strict=True))


def resolve_hdims(
    wanted: Iterable[Bucket], chain: Sequence[Bucket], serves: Mapping[Bucket, Iterable[Bucket]]
) -> tuple[set[Bucket], list[Bucket]]:
    """Return (buckets that serve the wanted head dims, wanted ones that no bucket serves).

    A bucket of this size serves them; otherwise the first bucket of the full dispatch that takes
    such a problem, as in CK (hdim 96 runs in CK's forward 96x128 bucket).

    Args:
        chain: the buckets of one arch and dtype, in dispatch order.
        serves: for each bucket the (step_q, step_v) of its kernels, as `takes` has them.
    """
    found: set[Bucket] = set()
    missing = []
    for q, v in wanted:
        fitting = [
            b
            for b in chain
            if q <= b[0] and v <= b[1] and any(takes((q, v), steps) for steps in serves[b])
        ]
        if (q, v) in chain:
            found.add((q, v))
        elif fitting:
            found.add(fitting[0])
        else:
            missing.append((q, v))
    return found, missing
