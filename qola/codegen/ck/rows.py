"""Derives the rows of a direction from the recording of CK's generator, and selects among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qola.codegen.ck.link import Call, Links, NotUnderstoodError, Traits, call_of, reading_ck
from qola.codegen.ck.messages import GeneratorRequest
from qola.codegen.ck.observe import Pool, Recording, Registered
from qola.codegen.ck.receipts import (
    broken_rule,
    emulated,
    mismatches,
    resolve_hdims,
    show,
    source,
)
from qola.codegen.ck.vocabulary import (
    CONDITION_FIELDS,
    Condition,
    fields_of,
    read_condition,
    without_enum,
)
from qola.codegen.types import Bucket, FieldValue
from qola.kernel.selection import EVERYTHING, REQUESTED, VariantFilter

_MISSING = "missing"
"""Stands for a field that a row does not have."""

_ALTERNATIVES = 2
"""Kernels to name for each dimension in which they differ from a variant that selects none."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of CK.

    Attributes:
        fields: see `KernelInstance.fields`.
        source: text of its C++ source.
    """

    role: str
    name: str
    arch: str | None
    fields: Mapping[str, FieldValue]
    source: str
    traits: Traits | None = None


@dataclass(frozen=True)
class Row:
    """One entry of a dispatch if-chain.

    Attributes:
        key: identifies the row in every receipt.
        registered: CK's registration.
        call: the arch and the kernel types that its text calls.
        main: the main kernel; helper kernels run before and after it.
        problem: the (field, value) pairs the entry's condition compares for equality.
        bucket: (hdim_q, hdim_v) up to which its bucket of the chain accepts a problem.
        steps: hdim_q and hdim_v must be multiples of these; if a step is negative, they must not.
        bm0: tile length along q if the chain picks tiles by it, else None.
        conditional: the entry serves only some sequence lengths, device loads or masks.
        devices: prefixes of the names of the devices that it serves.
    """

    key: str
    registered: Any
    call: Call
    main: Kernel
    kernels: tuple[Kernel, ...]
    problem: tuple[tuple[str, FieldValue], ...]
    bucket: tuple[int, int]
    steps: tuple[int, int]
    bm0: int | None = None
    conditional: bool = False
    devices: tuple[str, ...] = ()

    @property
    def fields(self) -> Mapping[str, FieldValue]:
        """The fields by which variants and receipts select."""
        return self.main.fields

    @property
    def arch(self) -> str | None:
        """CK's name of the architecture, None if the dispatch does not test it."""
        return self.main.arch


@dataclass(frozen=True)
class Base:
    """The content of a receipt: rows in chain order, and kernels that no row calls.

    Attributes:
        unknown: fields that the dispatch compares and no variant can name, with their values.
        masks: by each of CK's words for masks, whether there is a mask.
    """

    rows: Sequence[Row]
    loose: Sequence[Kernel] = ()
    unknown: Mapping[str, frozenset[FieldValue]] = field(default_factory=dict)
    masks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels; those that several rows call are repeated."""
        return [*(kernel for row in self.rows for kernel in row.kernels), *self.loose]


class Dispatch:
    """The dispatch of a recording, which can be rendered with other rows.

    Raises:
        NotUnderstoodError: several pools make the dispatch, or rendering it again gives another
            text.
    """

    def __init__(self, recording: Recording) -> None:
        pools = [pool for pool in recording.pools if pool.renders]
        if len(pools) != 1:
            raise NotUnderstoodError(f"{len(pools)} classes *ApiPool render a dispatch, not one")
        self._pool = pools[0]
        self.rows = self._pool.rows
        texts = [text for _, _, text in self._pool.renders]
        found = {name: _between(text, texts) for name, text in recording.files.items()}
        files = {name: parts for name, parts in found.items() if parts}
        if len(files) != 1:
            raise NotUnderstoodError(f"the texts of the pool are in {len(files)} files, not in one")
        ((self.name, self._parts),) = files.items()
        # By the ids of rows, with the rows, so that their ids are not used again.
        self._texts: dict[tuple[int, ...], tuple[list[Registered], str]] = {}
        if self.text(self.rows) != recording.files[self.name]:
            raise NotUnderstoodError("the dispatch of all rows, rendered again, differs")

    def text(self, rows: Iterable[Registered]) -> str:
        """Render the dispatch of these rows, in their order."""
        chosen = list(rows)
        key = tuple(map(id, chosen))
        if key not in self._texts:
            with reading_ck():
                made = [*self._pool.replay(chosen), ""]
            parts = zip(self._parts, made, strict=True)
            self._texts[key] = chosen, "".join(part + text for part, text in parts)
        return self._texts[key][1]

    def pool_of(self, rows: Iterable[Registered]) -> Pool:
        """Return the pool as if the generator had only registered these rows."""
        chosen = list(rows)
        with reading_ck():
            texts = self._pool.replay(chosen)
        renders = [
            (name, call, text)
            for (name, call, _), text in zip(self._pool.renders, texts, strict=True)
        ]
        return Pool(self._pool.make, chosen, renders)

    def texts_of(self, rows: Iterable[Registered]) -> list[str]:
        """Render the dispatch of each row separately, without the common beginning."""
        texts = ["".join(self._pool.replay([row])) for row in rows]
        empty, first = "".join(self._pool.replay([])), "".join(texts[:1])
        same = (a == b for a, b in zip(empty, first, strict=False))
        start = empty[: next((i for i, equal in enumerate(same) if not equal), 0)]
        return [text.removeprefix(start) for text in texts]


def _between(text: str, renders: Sequence[str]) -> list[str]:
    """Split a file at the texts; [] if it lacks one."""
    parts = []
    for render in renders:
        part, found, text = text.partition(render) if render else ("", "", "")
        if not found:
            return []
        parts.append(part)
    return [*parts, text]


def read_base(direction: str, recording: Recording, dispatch: Dispatch) -> Base:
    """Read the rows and kernels of a recording.

    Raises:
        NotUnderstoodError: a row or kernel has an unknown form, or they do not match.
    """
    with reading_ck():
        return _Reader(direction, recording, dispatch).base()


class _Reader:
    def __init__(self, direction: str, recording: Recording, dispatch: Dispatch) -> None:
        self._direction = direction
        self._recording = recording
        self._rows = dispatch.rows
        self._links = Links({n: t for n, t in recording.files.items() if n != dispatch.name})
        self._links.check()
        self._texts = dispatch.texts_of(dispatch.rows)
        self._conditions = [read_condition(text) for text in self._texts]
        self._masks = self._mask_words()
        self._compared: list[str] = max(
            (list(c.compared) for c in self._conditions), key=len, default=[]
        )
        self._kernels: dict[str, Kernel] = {}

    def base(self) -> Base:
        rows: list[Row] = []
        seen: dict[str, int] = {}
        for found in zip(self._rows, self._texts, self._conditions, strict=True):
            row = self._row(*found)
            seen[row.key] = count = seen.get(row.key, 0) + 1
            rows.append(row if count == 1 else replace(row, key=f"{row.key} {count}"))
        called = set(self._kernels)
        loose = [self._kernel(name, None) for name in self._links.traits if name not in called]
        names = {name for name in self._compared if name not in CONDITION_FIELDS.values()}
        unknown = {n: frozenset(row.fields[n] for row in rows) for n in sorted(names)}
        return Base(_in_chain_order(rows), loose, unknown, self._masks)

    def _mask_words(self) -> dict[str, bool]:
        """Return whether each of CK's words for masks means a mask, derived from the conditions."""
        words: dict[str, bool] = {}
        for row, condition in zip(self._rows, self._conditions, strict=True):
            word = without_enum(getattr(row.row, "mask", None))
            if not isinstance(word, str) or condition.mask is None:
                continue
            if words.setdefault(word, condition.mask) != condition.mask:
                raise NotUnderstoodError(f"mask {word} means one thing here, another there")
        return words

    def _row(self, registered: Registered, text: str, condition: Condition) -> Row:
        arch, used = call = call_of(text)
        if not used:
            raise NotUnderstoodError(f"no traits type in the row `{text.strip()[:400]}`")
        item = registered.row
        main = max(range(len(used)), key=lambda i: used[i].arguments.count(","))
        kernels = [self._file_of(traits, arch) for traits in used]
        own = self._kernel(kernels[main], condition, item)
        fields = own.fields
        if missing := [name for name in ("dtype", "hdim_q") if name not in fields]:
            raise NotUnderstoodError(f"kernel {own.name} has no {' and no '.join(missing)}")
        return Row(
            key=" ".join(kernels),
            registered=registered,
            call=call,
            main=own,
            kernels=tuple(self._kernel(name, condition) for name in kernels),
            problem=tuple((name, fields[name]) for name in self._compared),
            bucket=condition.bucket,
            steps=condition.steps,
            bm0=item.bm0 if hasattr(item, "seqtune") else None,
            conditional=condition.conditional,
            devices=condition.devices,
        )

    def _file_of(self, traits: Traits, arch: str) -> str:
        files = self._links.files(traits, arch)
        if len(files) != 1:
            wanted = f"{traits.name}<{traits.arguments}> {arch}".strip()
            raise NotUnderstoodError(f"{len(files)} sources, not one, define {wanted}")
        return files[0]

    def _kernel(self, file: str, condition: Condition | None, item: Any = None) -> Kernel:
        """Return the kernel of a source; `item` is the row's object of its main kernel."""
        if file not in self._kernels:
            (traits,) = self._links.traits[file]
            found = self._fields(file, condition, item)
            if arch := found.get("arch") or self._links.archs[file]:
                found["arch"] = arch
            self._kernels[file] = Kernel(
                traits.role or self._direction,
                file.removesuffix(".cpp"),
                str(arch) if arch else None,
                found,
                self._recording.files[file],
                traits,
            )
        return self._kernels[file]

    def _fields(self, file: str, condition: Condition | None, item: Any) -> dict[str, FieldValue]:
        found = fields_of(self._recording.kernels.get(file, item), self._masks)
        if "hdim_q" in found:
            found["hdim_v"] = condition.bucket[1] if condition else found["hdim_q"]
        if item is None or condition is None:
            return found
        if "lse" not in self._compared:
            # Every split kernel writes lse for the combine step; callers get it or not from there.
            found.pop("lse", None)
        words = {"true": True, "false": False}
        for name in self._compared:
            word = condition.compared.get(name, "")
            found.setdefault(name, words.get(word, word))
        return found


def _in_chain_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows in the order of the dispatch: by arch, dtype, head dims, as each first occurs."""
    places: dict[tuple[Any, ...], int] = {}

    def place(row: Row) -> tuple[int, ...]:
        parts = row.arch, row.fields["dtype"], row.bucket
        return tuple(places.setdefault(parts[:n], len(places)) for n in (1, 2, 3))

    return sorted(rows, key=place)


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
        # There may be thousands of variants, of which many differ in their head dimensions only.
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
            buckets[place], missing = resolve_hdims(variant.hdims, chain)
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
                buckets, _ = resolve_hdims([size], chain)
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
        return f"no variant has it; the nearest, {nearest.place}, lacks {values}"

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
