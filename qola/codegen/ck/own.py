"""Rows of the dispatch for kernels that a manifest names one by one, whether CK has them or not.

One that CK enumerates is its row. Any other is made of the row that is most like it, by CK's own
objects and templates (qola.codegen.ck.altered), and read as every row is: its fields, its
condition, and the types by which dispatch and sources fit each other. Only if that gives the fields
which were asked for, is it the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qola.codegen.ck.altered import altered, kernels_held, text_of, values_of
from qola.codegen.ck.link import NotUnderstoodError, Traits, call_of, followed, traits_of
from qola.codegen.ck.observe import Pool, Recording, Registered
from qola.codegen.ck.predicates import ASKED_FOR, VariantFilter, show
from qola.codegen.ck.request import GeneratorRequest
from qola.codegen.ck.rows import Base, Dispatch, Kernel, Row, read_base
from qola.codegen.types import RequestedKernel
from qola.errors import Finding

#: Fields by which another row is like one, before all others; a tile is always another.
_ALIKE = ("pipeline", "trload", "dtype", "mode", "hdim_q", "hdim_v", "mask", "bias")


def keeper_of(kernel: RequestedKernel) -> VariantFilter:
    """Return the filter that keeps a requested kernel."""
    return VariantFilter(ASKED_FOR, kernel.label, 0, {}, None)


@dataclass(frozen=True)
class FoundRows:
    """The dispatch entries of a requested kernel.

    Attributes:
        made: CK does not enumerate them.
    """

    kernel: RequestedKernel
    rows: tuple[Row, ...]
    made: bool

    @property
    def types(self) -> set[tuple[str | None, Traits | None]]:
        """What a dispatch calls it by: another kernel of the same type is another definition."""
        return {(row.arch, row.main.traits) for row in self.rows}


def find(
    request: GeneratorRequest,
    recording: Recording,
    dispatch: Dispatch,
    bases: Mapping[int, Base],
) -> tuple[list[FoundRows], list[Finding]]:
    """Return the rows of requested kernels, and a finding for each that cannot be generated.

    Args:
        recording, dispatch: of the first of the receipts in `bases`.
    """
    direction, base = request.direction, next(iter(bases.values()))
    if request.dropped:
        expected = "no drop_directions with its direction"
        words = f"kernels of {direction}, which is dropped"
        return [], [Finding(kernel.label, words, expected) for kernel in request.kernels]
    found: list[FoundRows] = []
    wrong: list[Finding] = []
    types: dict[tuple[str | None, Traits | None], RequestedKernel] = {}
    for own in request.kernels:
        try:
            one = _found(direction, recording, dispatch, base, own)
        except NotUnderstoodError as error:
            expected = (
                f"a kernel that CK's templates for {direction} {own.config.role} can be made of"
            )
            wrong.append(Finding(own.label, f"{own.config.name}: {error}", expected))
            continue
        others = [types[key] for key in one.types if key in types]
        if others:
            words = f"{own.config.name}: of the same type in C++ as {others[0].label}"
            expected = "kernels that differ in more than waves and matrix instructions"
            wrong.append(Finding(own.label, words, expected, "a manifest for each of the two"))
            continue
        types.update(dict.fromkeys(one.types, own))
        found.append(one)
    return found, wrong


def _found(
    direction: str, recording: Recording, dispatch: Dispatch, base: Base, own: RequestedKernel
) -> FoundRows:
    rows = tuple(row for row in base.rows if row.main.role == own.config.role)
    if not rows:
        roles = ", ".join(sorted({row.main.role for row in base.rows})) or "none"
        raise NotUnderstoodError(
            f"{own.config.role} comes along with others, or is not there: main kernels are {roles}"
        )
    if same := tuple(row for row in rows if row.main.fields == own.config.fields()):
        return FoundRows(own, same, made=False)
    like = _most_like(rows, own)
    alike = [row for row in rows if row.main.name == like.main.name and row.arch == like.arch]
    made = _Maker(direction, recording, dispatch, base, own, like.main)
    with followed():
        return FoundRows(own, made.rows(alike), made=True)


def _most_like(rows: Sequence[Row], own: RequestedKernel) -> Row:
    """Return the row that has most of a kernel's fields.

    Raises:
        NotUnderstoodError: none is for its arch, or its fields are others than theirs.
    """
    arch = own.config.arch
    of_arch = [row for row in rows if row.arch == arch]
    if not of_arch:
        known = ", ".join(sorted({str(row.arch) for row in rows}))
        raise NotUnderstoodError(f"arch {arch}, while CK has kernels for {known} here")

    def likeness(row: Row) -> tuple[int, int]:
        same = [n for n, value in own.config.fields().items() if row.main.fields.get(n) == value]
        weight = sum(1 << i for i, n in enumerate(reversed(_ALIKE)) if n in same)
        return weight, len(same)

    best = max(of_arch, key=likeness)
    have, want = set(best.main.fields), set(own.config.fields())
    if have != want:
        words = [f"{name} left out" for name in sorted(have - want)]
        words += [f"{name}, which they do not have" for name in sorted(want - have)]
        raise NotUnderstoodError(f"fields of such kernels: {', '.join(words)}")
    return best


class _Maker:
    """Makes rows and sources of a kernel from those of another one."""

    def __init__(
        self,
        direction: str,
        recording: Recording,
        dispatch: Dispatch,
        base: Base,
        own: RequestedKernel,
        like: Kernel,
    ) -> None:
        self._direction, self._recording, self._dispatch = direction, recording, dispatch
        self._own = own
        self._item = recording.kernels.get(f"{like.name}.cpp")
        self._like = like
        self._known = {
            (kernel.traits, kernel.arch): kernel
            for kernel in (*(k for row in base.rows for k in row.kernels), *base.loose)
        }
        self._masks = _mask_words(base)

    def rows(self, alike: Sequence[Row]) -> tuple[Row, ...]:
        """Return the rows that CK has of the other kernel, for this one.

        Raises:
            NotUnderstoodError: they cannot be made, or are those of a third kernel.
        """
        changes = {
            name: value
            for name, value in self._own.config.fields().items()
            if self._like.fields[name] != value
        }
        if self._item is None:
            raise NotUnderstoodError(f"no object of CK gave {self._like.name} its name")
        values = values_of(self._item, changes, self._masks)
        kernel = altered(self._item, values)
        registered = [_altered_row(row.registered, values) for row in alike]
        files = {kernel.filename: text_of(kernel, self._like.source, self._item)}
        items = {kernel.filename: kernel}
        for one in registered:
            self._add_partners(one, files, items)
        made = read_base(self._direction, *self._seen(registered, files, items)).rows
        for row in made:
            self._check(row)
        # A kernel of such a name, whatever its fields: it would be compiled in place of this one.
        if kernel.filename in self._recording.files:
            raise NotUnderstoodError(f"CK has another kernel that it calls {kernel.filename}")
        return tuple(
            replace(row, kernels=tuple(self._partner(one) for one in row.kernels)) for row in made
        )

    def _add_partners(self, row: Registered, files: dict[str, str], items: dict[str, Any]) -> None:
        """Add sources of what a row calls beside its main kernel: CK's, or made by its object."""
        (text,) = self._dispatch.texts_of([row])
        arch, called = call_of(text)
        held = list(kernels_held(row.row))
        main = traits_of(next(iter(files.values())))
        for traits in called:
            if traits in main:
                continue
            known = self._known.get((traits, arch or None))
            if known is not None:
                files[f"{known.name}.cpp"] = known.source
                item = self._recording.kernels.get(f"{known.name}.cpp")
                if item is not None:
                    items[f"{known.name}.cpp"] = item
                continue
            for item in held:
                like = self._recorded_like(item)
                source = text_of(item, self._recording.files[like.filename], like)
                if traits in traits_of(source):
                    files[item.filename], items[item.filename] = source, item

    def _recorded_like(self, item: Any) -> Any:
        """Return a kernel of CK's of the same class."""
        for known in self._recording.kernels.values():
            if type(known) is type(item) and known.filename in self._recording.files:
                return known
        raise NotUnderstoodError(f"no {type(item).__name__} that CK has written")

    def _seen(
        self, rows: Sequence[Registered], files: Mapping[str, str], items: Mapping[str, Any]
    ) -> tuple[Recording, Dispatch]:
        """Return what would have been seen of CK's generator, had it made these rows alone."""
        pool: Pool = self._dispatch.pool_of(rows)
        text = self._dispatch.text(rows)
        seen = Recording([pool], {**files, self._dispatch.name: text}, dict(items))
        return seen, Dispatch(seen)

    def _check(self, row: Row) -> None:
        found, wanted = row.main.fields, self._own.config.fields()
        wrong = [
            f"{name} {show(found.get(name))} in place of {show(value)}"
            for name, value in sorted(wanted.items())
            if found.get(name) != value
        ]
        if wrong or found.keys() != wanted.keys():
            raise NotUnderstoodError(f"CK makes another kernel of it, with {', '.join(wrong)}")

    def _partner(self, kernel: Kernel) -> Kernel:
        """Return a partner as CK's own, where it is: it is the same for all rows then."""
        own = kernel.fields == self._own.config.fields()
        return kernel if own else self._known.get((kernel.traits, kernel.arch), kernel)


def _altered_row(registered: Registered, values: Mapping[str, Any]) -> Registered:
    """Return what would have been registered of another kernel."""
    args = tuple(altered(one, values) if one is registered.row else one for one in registered.args)
    more = {
        name: altered(one, values) if one is registered.row else one
        for name, one in registered.more.items()
    }
    return replace(registered, args=args, more=more)


def _mask_words(base: Base) -> dict[str, bool]:
    """Return what CK's words for masks stand for, by the rows that have them."""
    return {
        word: bool(row.main.fields["mask"])
        for row in base.rows
        if isinstance(word := getattr(row.registered.row, "mask", None), str)
        and isinstance(row.main.fields.get("mask"), bool)
    }


def arranged(rows: Sequence[Row], order: Sequence[Row], found: Sequence[FoundRows]) -> list[Row]:
    """Return rows with those of kernels that are asked for.

    CK's own are where CK has them. One that is made, or that the receipts do not have, comes before
    all of its bucket; a bucket that CK does not have, before the first one that takes its problems.

    Args:
        order: all rows of the receipts, some of which are `rows`.
    """
    have = {row.key for row in rows}
    asked = {row.key: row for one in found for row in one.rows}
    ordered = [row for row in order if row.key in have or row.key in asked]
    known = {row.key for row in ordered}
    for row in reversed([row for key, row in asked.items() if key not in known]):
        ordered.insert(_place(ordered, row), row)
    return ordered


def _place(ordered: Sequence[Row], row: Row) -> int:
    """Return where a row goes among others, none of whose archs may change places."""
    of_arch = [n for n, other in enumerate(ordered) if other.arch == row.arch]
    chain = [n for n in of_arch if ordered[n].fields["dtype"] == row.fields["dtype"]]
    same = [n for n in chain if ordered[n].bucket == row.bucket]
    taking = [n for n in chain if _takes(ordered[n].bucket, row.bucket)]
    last = max(chain or of_arch, default=len(ordered) - 1) + 1
    return min(same or taking, default=last)


def _takes(bucket: tuple[int, int], size: tuple[int, int]) -> bool:
    return size[0] <= bucket[0] and size[1] <= bucket[1]
