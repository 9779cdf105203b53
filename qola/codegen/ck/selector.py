"""Applies receipts and variants to the rows of one direction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from qola.codegen.types import Bucket, FieldValue

_MISSING = "missing"
"""Stands for a field that a row does not have."""

_ALTERNATIVES = 2
"""Kernels to name for each dimension in which they differ from a variant that selects none."""


def _key_of(name: str) -> str:
    """Return the key of variants for a field of kernels."""
    return name if name in ("dtype", "bias", "deterministic", "hdim", "mode") else f"has_{name}"


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


_Place = tuple[str | None, Any]
"""The arch and dtype of a chain of the dispatch."""
_Where = tuple[int, tuple[tuple[str, tuple[FieldValue, ...]], ...]]
"""Receipt and permitted values of a filter."""


def _where_of(variant: VariantFilter) -> _Where:
    return variant.receipt, tuple(variant.where.items())


class _Group:
    """Filters that differ in their head dimensions only.

    Attributes:
        blame: lines about fields of which no row has an allowed value; None if not computed.
    """

    def __init__(self, variant: VariantFilter) -> None:
        self.receipt, self._where = variant.receipt, variant.where
        self.blame: list[str] | None = None
        self._mismatches: dict[tuple[FieldValue, ...], list[str]] = {}
        self._filters: list[tuple[int, VariantFilter]] = []
        self._all: list[tuple[int, VariantFilter]] = []
        self._by_bucket: dict[tuple[_Place, Bucket], list[tuple[int, VariantFilter]]] = {}

    def add(
        self, place: int, variant: VariantFilter, buckets: Mapping[_Place, set[Bucket]]
    ) -> None:
        """Add a filter with its place in the request, and the buckets that it resolves to."""
        self._filters.append((place, variant))
        if variant.hdims is None:
            self._all.append((place, variant))
        for key in ((at, bucket) for at, found in buckets.items() for bucket in found):
            self._by_bucket.setdefault(key, []).append((place, variant))

    def mismatches(self, row: Row) -> list[str]:
        """Return the fields of which a row has no permitted value; computed once for equal rows."""
        values = tuple(row.fields.get(name, _MISSING) for name in self._where)
        if values not in self._mismatches:
            self._mismatches[values] = mismatches(self._where, row.fields)
        return self._mismatches[values]

    def serving(self, row: Row) -> list[tuple[int, VariantFilter]]:
        """Return the filters whose head dimensions a row serves, with their places."""
        served = self._by_bucket.get(((row.arch, row.fields["dtype"]), row.bucket), [])
        return [*self._all, *served]

    def failing(self, row: Row, rule: str) -> Iterator[tuple[list[str], int, VariantFilter]]:
        """Yield each set of reasons why filters drop a row, with the first such filter.

        Args:
            rule: the rule by which the receipt drops the row, "" for none.
        """
        if rule:
            yield [rule], *self._filters[0]
            return
        fields, served = self.mismatches(row), {place for place, _ in self.serving(row)}
        for is_served in (True, False):
            found = (one for one in self._filters if (one[0] in served) == is_served)
            if first := next(found, None):
                yield fields if is_served else [*fields, "hdim"], *first


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
        self._rules: dict[tuple[str, int], str] = {}
        self.rows: list[Row] = []
        self.outside: list[Row] = []
        for row in self.order:
            offered = any(not self.rule(row, receipt) for receipt in receipts)
            (self.rows if offered else self.outside).append(row)
        # A manifest has up to 4096 variants, of which many differ in their head dimensions only.
        self._chains = {receipt: self._chains_of(receipt) for receipt in receipts}
        self.hdims = {w.index: self._resolve(w) for w in self._filters}
        self._groups: dict[_Where, _Group] = {}
        self._shared: dict[object, list[VariantFilter]] = {}
        for place, variant in enumerate(self._filters):
            group = self._groups.setdefault(_where_of(variant), _Group(variant))
            group.add(place, variant, self.hdims[variant.index][0])

    def rule(self, row: Row, receipt: int) -> str:
        """Return the rule by which a receipt drops a row, "" if it has the row."""
        found = self._rules.get((row.key, receipt))
        if found is None:
            found = self._rules[row.key, receipt] = self._find_rule(row, receipt)
        return found

    def _find_rule(self, row: Row, receipt: int) -> str:
        if row.key not in self._members[source(receipt, self._native)]:
            return f"receipt {receipt}: not in CK's set"
        made = emulated(receipt, self._native)
        if made is None:
            return ""
        return broken_rule(made.rules[self._direction], receipt, row.fields)

    def _resolve(self, variant: VariantFilter) -> tuple[dict[_Place, set[Bucket]], list[Bucket]]:
        """Return (buckets by arch and dtype, head dims that no arch and dtype serves)."""
        if variant.hdims is None:
            return {}, []
        buckets, unserved = {}, set(variant.hdims)
        for place, chain in self._chains[variant.receipt].items():
            buckets[place], missing = resolve_hdims(variant.hdims, list(chain), chain)
            unserved &= set(missing)
        return buckets, sorted(unserved)

    def _chains_of(self, receipt: int) -> dict[_Place, dict[Bucket, set[Bucket]]]:
        """Return the steps of each bucket of a receipt, by arch and dtype."""
        chains: dict[_Place, dict[Bucket, set[Bucket]]] = {}
        for row in filter(lambda r: not self.rule(r, receipt), self.rows):
            chain = chains.setdefault((row.arch, row.fields["dtype"]), {})
            chain.setdefault(row.bucket, set()).add(row.steps)
        return chains

    def padded(self, variant: VariantFilter) -> dict[tuple[Bucket, Bucket], list[str]]:
        """Return dtypes by (head dims of a variant, larger bucket that serves them)."""
        found: dict[tuple[Bucket, Bucket], set[str]] = {}
        dtypes = variant.where.get("dtype")
        for (_, dtype), chain in self._chains[variant.receipt].items():
            for size in variant.hdims or () if dtypes is None or dtype in dtypes else ():
                buckets, _ = resolve_hdims([size], list(chain), chain)
                for bucket in buckets - {size}:
                    found.setdefault((size, bucket), set()).add(str(dtype))
        return {pair: sorted(dtypes) for pair, dtypes in sorted(found.items())}

    def keepers(self, row: Row) -> list[VariantFilter]:
        """Return the variants that keep a row, in the order of the request.

        Rows with the same head dimensions and groups of variants share a list.
        """
        groups = [
            group
            for group in self._groups.values()
            if not self.rule(row, group.receipt) and not group.mismatches(row)
        ]
        key = (row.arch, row.fields["dtype"], row.bucket, *map(id, groups))
        if key not in self._shared:
            found = (one for group in groups for one in group.serving(row))
            ordered = sorted(found, key=lambda pair: pair[0])
            self._shared[key] = [variant for _, variant in ordered]
        return self._shared[key]

    def reason(self, row: Row) -> str:
        """Return why no variant keeps a row."""
        if all(w.index == REQUESTED for w in self._filters):
            return "no [[kernels]] names it, and there are no variants"
        failing = [
            (fields, place, variant)
            for group in self._groups.values()
            for fields, place, variant in group.failing(row, self.rule(row, group.receipt))
        ]
        common = set.intersection(*(set(fields) for fields, _, _ in failing))
        missing, _, nearest = min(failing, key=lambda found: (len(found[0]), found[1]))
        names = [n for n in missing if n in common] or missing
        if names[0].startswith("receipt "):
            return names[0]
        values = " ".join(f"{n}={self._value(row, n)}" for n in names)
        if common:
            return f"no variant has {values}"
        return f"no variant has it; the nearest, {nearest.label}, lacks {values}"

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
        group = self._groups[_where_of(variant)]
        if group.blame is None:
            group.blame = [*self._blame_fields(variant.where, rows)]
        return [*lines, *group.blame] or self._nearest(variant, group, rows)

    def _blame_fields(
        self, where: Mapping[str, Sequence[FieldValue]], rows: Sequence[Row]
    ) -> Iterator[str]:
        """Yield a line for each field of which no row has an allowed value."""
        for name, allowed in where.items():
            if all(name in mismatches({name: allowed}, row.fields) for row in rows):
                have = ", ".join(sorted({self._value(row, name) for row in rows}))
                wanted = ", ".join(map(show, allowed))
                yield f"{_key_of(name)}: wanted {wanted}, there is only {have}"

    def _nearest(self, variant: VariantFilter, group: _Group, rows: Sequence[Row]) -> list[str]:
        """Return the kernels that lack the fewest values of a variant, and the values they have."""
        found: dict[tuple[str, ...], dict[str, str]] = {}
        buckets = self.hdims[variant.index][0]
        for row in rows:
            served = variant.hdims is None or row.bucket in buckets.get(
                (row.arch, row.fields["dtype"]), ()
            )
            names = (*group.mismatches(row), *([] if served else ["hdim"]))
            values = ", ".join(f"{_key_of(name)} {self._value(row, name)}" for name in names)
            found.setdefault(names, {}).setdefault(values, row.main.name)
        fewest = min(map(len, found))
        lines = [
            f"  {name}: {values}"
            for names, kernels in found.items()
            if len(names) == fewest
            for values, name in [*kernels.items()][:_ALTERNATIVES]
        ]
        return ["no kernel has all of it at once; the nearest differ in:", *lines]
