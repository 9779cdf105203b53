"""Selects kernels by variants and emulated receipts: by their fields, never by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qola.codegen.ck.receipts import Rules
from qola.codegen.types import Bucket, FieldValue

#: Values of missing fields: split-KV kernels have no dropout, older CKs no sink. A kernel serves
#: every value of any other missing field.
WITHOUT = {"dropout": False, "skip": False, "sink": False, "squant": False, "logits": False}


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
