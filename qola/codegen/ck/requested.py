"""Rows of the dispatch for kernels that a manifest names one by one, whether CK has them or not.

One that CK enumerates is its row. Any other is made of the row that is most like it, by CK's own
objects and templates (qola.codegen.ck.altered), and read as every row is: its fields, its
condition, and the types by which dispatch and sources fit each other. Only if that gives the fields
which were asked for, is it the kernel.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qola.codegen.ck.link import NotUnderstoodError, Traits, call_of, reading_ck, traits_of
from qola.codegen.ck.messages import GeneratorRequest
from qola.codegen.ck.observe import Pool, Recording, Registered
from qola.codegen.ck.predicates import REQUESTED, VariantFilter, show
from qola.codegen.ck.rows import Base, Dispatch, Kernel, Row, read_base
from qola.codegen.ck.vocabulary import ALIASES, without_enum
from qola.codegen.types import FieldValue, RequestedKernel
from qola.errors import Finding

#: Numbers of a tile's notation, by the letter with which they and CK's members for them begin.
_PART = re.compile(r"([brw])(\d+(?:x\d+)*)")
_PER_CU, _MOST_ROWS = re.compile(r"o(-?\d+)"), re.compile(r"maxq(\d+)")
#: Of a tile whose notation does not say how many blocks a compute unit is to hold.
_ANY_NUMBER = -1
#: Members that no value of a field is looked for in: what belongs to an arch goes with it.
_LEFT_ALONE = frozenset({"arch", "mask_impl", "constraint"})

#: What a pipeline calls a field.
_IN_PIPELINE = {"pipeline": "tag"}

Values = Mapping[str, Any]


def values_of(item: Any, fields: Mapping[str, FieldValue], masks: Mapping[str, bool]) -> Values:
    """Return values by CK's names for its members, such that an object would have these fields.

    Args:
        item: an object of CK that has all members, with other values.
        fields: only those that differ.
        masks: what each of CK's words for a mask stands for.

    Raises:
        NotUnderstoodError: a mask or a tile that there is no word or number for.
    """
    found: dict[str, Any] = {}
    names = {ours: theirs for theirs, ours in ALIASES.items()}
    for name, value in fields.items():
        for word in (name, names.get(name, name), _IN_PIPELINE.get(name, name)):
            found[word] = value
    if "mask" in fields and isinstance(fields["mask"], bool):
        words = [word for word, means in masks.items() if means == fields["mask"]]
        if not words:
            raise NotUnderstoodError(f"no word for mask {fields['mask']}")
        found["mask"] = words[0]
    if "dropout_kind" in fields:
        found["dropout"] = fields["dropout_kind"]
    if "tile" in fields:
        found.update(_tile_values(item, str(fields["tile"])))
    return found


def altered(item: Any, values: Values, *, held: str = "") -> Any:
    """Return a copy of an object, and of those it holds, with other values.

    Args:
        held: what another object calls it.
    """
    made = copy.copy(item)
    for written, given in vars(item).items():
        name = written.removeprefix("F_")
        now = without_enum(given)
        if name in _LEFT_ALONE or (name == "tag" and held != "pipeline"):
            continue
        if now is None or isinstance(now, (str, int)):
            if name in values:
                # Dataclasses of CK may be frozen.
                object.__setattr__(made, written, _as(now, values[name]))
        elif hasattr(now, "__dict__") and not isinstance(now, type):
            object.__setattr__(made, written, altered(now, values, held=name))
    return made


def _as(now: Any, value: Any) -> Any:
    """Return a value in the form that CK has there: t and f, or numbers as text."""
    if isinstance(value, bool) and not isinstance(now, bool):
        return "t" if value else "f"
    return str(value) if isinstance(now, str) and isinstance(value, int) else value


def _tile_values(item: Any, notation: str) -> dict[str, int]:
    """Return the numbers of a tile by the members of the tile that an object holds.

    Raises:
        NotUnderstoodError: it holds none, or one of more or fewer numbers.
    """
    tile = next((v for n, v in vars(item).items() if n.removeprefix("F_") == "tile"), None)
    if tile is None or not hasattr(tile, "__dict__"):
        raise NotUnderstoodError("CK's kernels of the family have no tile of their own")
    members = [name.removeprefix("F_") for name in vars(tile)]
    found: dict[str, int] = {}
    for letter in "brw":
        own = [name for name in members if name.startswith(letter)]
        parts = [match[2] for match in _PART.finditer(notation) if match[1] == letter]
        numbers = [int(number) for part in parts for number in part.split("x")]
        if len(own) != len(numbers):
            words = f"{len(numbers)} numbers after {letter}, while CK's tile has {len(own)}"
            raise NotUnderstoodError(f"the tile {notation} has {words}")
        found.update(zip(own, numbers, strict=True))
    for member, pattern, usual in (
        ("occupancy", _PER_CU, _ANY_NUMBER),
        ("max_seq_q", _MOST_ROWS, 0),
    ):
        if member in members:
            match = re.search(f"_{pattern.pattern}(?:_|$)", notation)
            found[member] = int(match[1]) if match else usual
    return found


def text_of(item: Any, known: str, like: Any) -> str:
    """Return the source of a kernel by CK's own template.

    Args:
        known: source of another kernel, which tells the property that gives it.
        like: that kernel.

    Raises:
        NotUnderstoodError: no property gives it.
    """
    for name in _properties(like):
        if _value(like, name) == known:
            return str(getattr(item, name))
    raise NotUnderstoodError(f"no property of {type(like).__name__} is a kernel's source")


def kernels_held(row: Any) -> Iterator[Any]:
    """Yield the kernels that an object of a dispatch makes of itself, such as partners."""
    for name in _properties(row):
        value = _value(row, name)
        if isinstance(getattr(type(value), "filename", None), property):
            yield value


def _properties(item: Any) -> list[str]:
    return [name for name in dir(type(item)) if isinstance(getattr(type(item), name), property)]


def _value(item: Any, name: str) -> Any:
    try:
        return getattr(item, name)
    except Exception:  # a property of CK that this object cannot have
        return None


#: Fields by which another row is like one, before all others; a tile is always another.
_ALIKE = ("pipeline", "trload", "dtype", "mode", "hdim_q", "hdim_v", "mask", "bias")


def keeper_of(kernel: RequestedKernel) -> VariantFilter:
    """Return the filter that keeps a requested kernel."""
    return VariantFilter(REQUESTED, kernel.label, 0, {}, None)


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
    with reading_ck():
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
