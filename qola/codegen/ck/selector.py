"""Applies receipts and variants to the rows of one direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from qola.codegen.ck.messages import GeneratorRequest
from qola.codegen.ck.predicates import (
    EVERYTHING,
    REQUESTED,
    VariantFilter,
    broken_rule,
    mismatches,
    resolve_hdims,
    show,
)
from qola.codegen.ck.receipts import emulated, source
from qola.codegen.ck.rows import Base, Kernel, Row
from qola.codegen.types import Bucket


def merge(sequences: Sequence[Sequence[Row]]) -> list[Row]:
    """Merge row sequences, keeping the order of each.

    A new row is placed before the next row that is already there: the chains of two receipts are
    the same enumeration with different parts left out.
    """
    merged = list(sequences[0]) if sequences else []
    for sequence in sequences[1:]:
        have = {row.key for row in merged}
        before: dict[str | None, list[Row]] = {}
        pending: list[Row] = []
        for row in sequence:
            if row.key in have:
                before[row.key], pending = pending, []
            else:
                pending.append(row)
        merged = [r for row in merged for r in (*before.get(row.key, ()), row)] + pending
    return merged


class Selector:
    """Applies receipts and variants to the rows of one direction.

    Attributes:
        order: rows of all used receipts of CK.
        rows, outside: the rows of `order` that the filters' receipts have, and the others.
        hdims: buckets by arch and dtype, and unserved head dims, by the index of a filter.
    """

    def __init__(self, request: GeneratorRequest, bases: Mapping[int, Base]) -> None:
        self._direction = request.direction
        self._native = frozenset(request.native)
        self._filters = request.filters
        self._bases = bases
        self._members = {r: {row.key for row in b.rows} for r, b in bases.items()}
        used = set().union(*(self._members[source(w.receipt, self._native)] for w in self._filters))
        receipts = sorted({w.receipt for w in self._filters})
        self.order = [r for r in merge([b.rows for b in bases.values()]) if r.key in used]
        self.rows: list[Row] = []
        self.outside: list[Row] = []
        for row in self.order:
            offered = any(not self.rule(row, receipt) for receipt in receipts)
            (self.rows if offered else self.outside).append(row)
        self.hdims = {w.index: self._resolve(w) for w in self._filters}

    def rule(self, row: Row, receipt: int) -> str:
        """Return the rule by which a receipt drops a row, "" if it has the row."""
        if row.key not in self._members[source(receipt, self._native)]:
            return f"receipt {receipt}: not in CK's set"
        made = emulated(receipt, self._native)
        if made is None:
            return ""
        return broken_rule(made.rules[self._direction], receipt, row.fields)

    def _resolve(
        self, variant: VariantFilter
    ) -> tuple[dict[tuple[str | None, Any], set[Bucket]], list[Bucket]]:
        """Return (buckets by arch and dtype, head dims that no arch and dtype serves)."""
        if variant.hdims is None:
            return {}, []
        buckets, unserved = {}, set(variant.hdims)
        for place, chain in self._chains(variant).items():
            buckets[place], missing = resolve_hdims(variant.hdims, list(chain), chain)
            unserved &= set(missing)
        return buckets, sorted(unserved)

    def _chains(
        self, variant: VariantFilter
    ) -> dict[tuple[str | None, Any], dict[Bucket, set[Bucket]]]:
        """Return the steps of each bucket of a variant's receipt, by arch and dtype."""
        chains: dict[tuple[str | None, Any], dict[Bucket, set[Bucket]]] = {}
        for row in filter(lambda r: not self.rule(r, variant.receipt), self.rows):
            chain = chains.setdefault((row.arch, row.fields["dtype"]), {})
            chain.setdefault(row.bucket, set()).add(row.steps)
        return chains

    def padded(self, variant: VariantFilter) -> dict[tuple[Bucket, Bucket], list[str]]:
        """Return dtypes by (head dims of a variant, larger bucket that serves them)."""
        found: dict[tuple[Bucket, Bucket], set[str]] = {}
        dtypes = variant.where.get("dtype")
        for (_, dtype), chain in self._chains(variant).items():
            for size in variant.hdims or () if dtypes is None or dtype in dtypes else ():
                buckets, _ = resolve_hdims([size], list(chain), chain)
                for bucket in buckets - {size}:
                    found.setdefault((size, bucket), set()).add(str(dtype))
        return {pair: sorted(dtypes) for pair, dtypes in sorted(found.items())}

    def failing(self, row: Row, variant: VariantFilter) -> list[str]:
        """Return the dimensions by which a variant drops a row, or the rule of its receipt."""
        rule = self.rule(row, variant.receipt)
        if rule:
            return [rule]
        failing = mismatches(variant.where, row.fields)
        if variant.hdims is not None:
            buckets = self.hdims[variant.index][0].get((row.arch, row.fields["dtype"]), set())
            if row.bucket not in buckets:
                failing.append("hdim")
        return failing

    def keepers(self, row: Row) -> list[VariantFilter]:
        """Return the variants that keep a row."""
        return [w for w in self._filters if not self.failing(row, w)]

    def reason(self, row: Row) -> str:
        """Return why no variant keeps a row."""
        if all(w.index == REQUESTED for w in self._filters):
            return "no [[kernels]] names it, and there are no variants"
        failing = [self.failing(row, w) for w in self._filters]
        common = set.intersection(*map(set, failing))
        nearest = min(range(len(failing)), key=lambda i: len(failing[i]))
        names = [n for n in failing[nearest] if n in common] or failing[nearest]
        if names[0].startswith("receipt "):
            return names[0]
        values = " ".join(f"{n}={self._value(row, n)}" for n in names)
        if common:
            return f"no variant has {values}"
        return f"no variant has it; the nearest, {self._filters[nearest].label}, lacks {values}"

    @staticmethod
    def _value(row: Row, name: str) -> str:
        if name == "hdim":
            return f"{row.bucket[0]}x{row.bucket[1]}"
        return show(row.fields.get(name, False))

    def loose(self) -> dict[str, tuple[Kernel, bool]]:
        """Return kernels that no row calls, by name, and whether each is kept.

        Only a filter that keeps all of one of CK's own receipts keeps them.
        """
        kernels: dict[str, tuple[Kernel, bool]] = {}
        for variant in self._filters:
            keep = variant.index == EVERYTHING and emulated(variant.receipt, self._native) is None
            for kernel in self._bases[source(variant.receipt, self._native)].loose:
                kernels[kernel.name] = (kernel, keep)
        return kernels

    def blame(self, variant: VariantFilter) -> list[str]:
        """Return why a variant selects nothing, dimension by dimension."""
        rows = [row for row in self.rows if not self.rule(row, variant.receipt)]
        if not rows:
            return [f"receipt {variant.receipt} has no kernels here"]
        lines = []
        if variant.hdims is not None and not any(self.hdims[variant.index][0].values()):
            dims = {(int(r.fields["hdim_q"] or 0), int(r.fields["hdim_v"] or 0)) for r in rows}
            wanted, there = (
                ", ".join(f"{q}x{v}" for q, v in pairs) for pairs in (variant.hdims, sorted(dims))
            )
            lines.append(f"hdim: wanted {wanted}, there is only {there}")
        for name, allowed in variant.where.items():
            if all(name in mismatches({name: allowed}, row.fields) for row in rows):
                have = ", ".join(sorted({self._value(row, name) for row in rows}))
                lines.append(
                    f"{name}: wanted {', '.join(map(show, allowed))}, there is only {have}"
                )
        return lines
