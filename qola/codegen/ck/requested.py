"""Finds or makes the dispatch rows of the kernels that a manifest requests by config.

A kernel that CK enumerates is its row. For any other, the objects of the most similar row are
copied with other values and rendered by CK's own templates. No class of a generator is known here:
`vocabulary.fields_of` reads the fields of its objects, and only the values from which it read them
are replaced. The result is read like every row, and must have exactly the requested fields.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from qola.codegen.ck.link import NotUnderstoodError, Traits, call_of, reading_ck, traits_of
from qola.codegen.ck.messages import GeneratorRequest
from qola.codegen.ck.observe import Recording, Registered
from qola.codegen.ck.receipts import show
from qola.codegen.ck.rows import Base, Dispatch, Kernel, Row, read_base
from qola.codegen.ck.vocabulary import ALIASES, without_enum
from qola.codegen.types import FieldValue
from qola.kernel.config import Tile
from qola.kernel.selection import RequestedKernel
from qola_base.errors import Finding

#: Attributes that are copied as they are.
_COPIED = frozenset({"arch", "mask_impl", "constraint"})

Values = Mapping[str, Any]


def _values_of(item: Any, fields: Mapping[str, FieldValue], masks: Mapping[str, bool]) -> Values:
    """Return the values, by CK's attribute names, that give an object of CK other `fields`.

    Args:
        masks: by each of CK's words for masks, whether there is a mask.
    """
    found: dict[str, Any] = dict(fields)
    found |= {theirs: fields[ours] for theirs, ours in ALIASES.items() if ours in fields}
    if "pipeline" in fields:
        found["tag"] = fields["pipeline"]
    if isinstance(fields.get("mask"), bool):
        words = [word for word, means in masks.items() if means == fields["mask"]]
        if not words:
            raise NotUnderstoodError(f"no word for mask {fields['mask']}")
        found["mask"] = words[0]
    if "dropout_kind" in fields:
        found["dropout"] = fields["dropout_kind"]
    if "tile" in fields:
        tile = Tile.parse(str(fields["tile"]))
        assert tile
        found.update(_tile_values(item, tile))
    return found


def _altered(item: Any, values: Values, *, held: str = "") -> Any:
    """Copy an object, and the objects in its attributes, with other values."""
    made = copy.copy(item)
    for written, given in vars(item).items():
        name = written.removeprefix("F_")
        now = without_enum(given)
        if name in _COPIED or (name == "tag" and held != "pipeline"):
            continue
        if now is None or isinstance(now, (str, int)):
            if name in values:
                # Dataclasses of CK may be frozen.
                object.__setattr__(made, written, _as(now, values[name]))
        elif hasattr(now, "__dict__") and not isinstance(now, type):
            object.__setattr__(made, written, _altered(now, values, held=name))
    return made


def _as(now: Any, value: Any) -> Any:
    """Convert a value to the type of the current one: t and f, or numbers as text."""
    if isinstance(value, bool) and not isinstance(now, bool):
        return "t" if value else "f"
    return str(value) if isinstance(now, str) and isinstance(value, int) else value


def _tile_values(item: Any, wanted: Tile) -> dict[str, int]:
    """Return the numbers of a tile by the attributes of an object's tile."""
    tile = next((v for n, v in vars(item).items() if n.removeprefix("F_") == "tile"), None)
    if tile is None or not hasattr(tile, "__dict__"):
        raise NotUnderstoodError("CK's kernels of the family have no tile of their own")
    members = [name.removeprefix("F_") for name in vars(tile)]
    found: dict[str, int] = {}
    # CK's attributes begin with the letter of their numbers in the notation of a tile.
    waves, warps = (tuple(chain(*products)) for products in (wanted.waves, wanted.warps))
    for letter, numbers in (("b", wanted.block), ("r", waves), ("w", warps)):
        own = [name for name in members if name.startswith(letter)]
        if len(own) != len(numbers):
            words = f"{len(numbers)} numbers after {letter}, while CK's tile has {len(own)}"
            raise NotUnderstoodError(f"the tile {wanted} has {words}")
        found.update(zip(own, numbers, strict=True))
    per_cu = -1 if wanted.per_cu is None else wanted.per_cu
    optional = {"occupancy": per_cu, "max_seq_q": wanted.max_rows or 0}
    return found | {name: value for name, value in optional.items() if name in members}


def _text_of(item: Any, known: str, like: Any) -> str:
    """Render the source of a kernel with CK's property that has the source `known` for `like`."""
    for name, value in _properties(like):
        if value == known:
            return str(getattr(item, name))
    raise NotUnderstoodError(f"no property of {type(like).__name__} is a kernel's source")


def _properties(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the properties of an object that apply to it, with their values."""
    for name in dir(type(item)):
        if isinstance(getattr(type(item), name), property):
            with contextlib.suppress(Exception):
                yield name, getattr(item, name)


#: Fields that decide which row is most similar, in descending order of importance.
_SIMILAR = ("pipeline", "trload", "dtype", "mode", "hdim_q", "hdim_v", "mask", "bias")


@dataclass(frozen=True)
class RequestedRows:
    """The dispatch rows of a requested kernel; `made` if CK does not enumerate it."""

    kernel: RequestedKernel
    rows: tuple[Row, ...]
    made: bool

    @property
    def types(self) -> set[tuple[str | None, Traits | None]]:
        """The C++ types by which a dispatch calls it; two kernels of one type cannot be linked."""
        return {(row.arch, row.main.traits) for row in self.rows}


def find_requested(
    request: GeneratorRequest,
    recording: Recording,
    dispatch: Dispatch,
    bases: Mapping[int, Base],
) -> tuple[list[RequestedRows], list[Finding]]:
    """Return the rows of requested kernels, and a finding for each that cannot be generated.

    The recording and the dispatch are those of the first receipt in `bases`.
    """
    direction, base = request.direction, next(iter(bases.values()))
    if request.dropped:
        expected = "no drop_directions with its direction"
        found = f"kernels of {direction}, which is dropped"
        return [], [Finding(kernel.place, found, expected) for kernel in request.kernels]
    requested: list[RequestedRows] = []
    wrong: list[Finding] = []
    types: dict[tuple[str | None, Traits | None], RequestedKernel] = {}
    for own in request.kernels:
        name = own.config.name
        try:
            rows = _find_rows(direction, recording, dispatch, base, own)
        except NotUnderstoodError as error:
            expected = (
                f"a kernel that CK's templates for {direction} {own.config.role} can be made of"
            )
            wrong.append(Finding(own.place, f"{name}: {error}", expected))
            continue
        if others := [types[key] for key in rows.types if key in types]:
            found = f"{name}: of the same type in C++ as {others[0].place}"
            expected = "kernels that differ in more than waves and matrix instructions"
            wrong.append(Finding(own.place, found, expected, "a manifest for each of the two"))
            continue
        types.update(dict.fromkeys(rows.types, own))
        requested.append(rows)
    return requested, wrong


def _find_rows(
    direction: str, recording: Recording, dispatch: Dispatch, base: Base, own: RequestedKernel
) -> RequestedRows:
    rows = tuple(row for row in base.rows if row.main.role == own.config.role)
    if not rows:
        roles = ", ".join(sorted({row.main.role for row in base.rows})) or "none"
        raise NotUnderstoodError(
            f"{own.config.role} is a helper kernel, or missing: main kernels are {roles}"
        )
    if same := tuple(row for row in rows if row.main.fields == own.config.fields()):
        return RequestedRows(own, same, made=False)
    like = _most_like(rows, own)
    alike = [row for row in rows if row.main.name == like.main.name and row.arch == like.arch]
    made = _Maker(direction, recording, dispatch, base, own, like.main)
    with reading_ck():
        return RequestedRows(own, made.rows(alike), made=True)


def _most_like(rows: Sequence[Row], own: RequestedKernel) -> Row:
    """Return the row of the kernel's arch whose fields are most similar."""
    arch = own.config.arch
    of_arch = [row for row in rows if row.arch == arch]
    if not of_arch:
        known = ", ".join(sorted({str(row.arch) for row in rows}))
        raise NotUnderstoodError(f"arch {arch}, while CK has kernels for {known} here")

    def likeness(row: Row) -> tuple[int, int]:
        same = [n for n, value in own.config.fields().items() if row.main.fields.get(n) == value]
        weight = sum(1 << i for i, n in enumerate(reversed(_SIMILAR)) if n in same)
        return weight, len(same)

    best = max(of_arch, key=likeness)
    have, want = set(best.main.fields), set(own.config.fields())
    if have != want:
        words = [f"{name} left out" for name in sorted(have - want)]
        words += [f"{name}, which they do not have" for name in sorted(want - have)]
        raise NotUnderstoodError(f"fields of such kernels: {', '.join(words)}")
    return best


class _Maker:
    """Makes the rows and sources of a requested kernel from those of a similar one."""

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
        self._fields, self._like, self._base = own.config.fields(), like, base
        self._known = {(kernel.traits, kernel.arch): kernel for kernel in base.kernels}

    def rows(self, alike: Sequence[Row]) -> tuple[Row, ...]:
        like = self._like
        item = self._recording.kernels.get(f"{like.name}.cpp")
        if item is None:
            raise NotUnderstoodError(f"no object of CK gave {like.name} its name")
        changes = {n: value for n, value in self._fields.items() if like.fields[n] != value}
        values = _values_of(item, changes, self._base.masks)
        kernel = _altered(item, values)
        registered = [_altered_row(row.registered, values) for row in alike]
        files = {kernel.filename: _text_of(kernel, like.source, item)}
        items = {kernel.filename: kernel}
        for one in registered:
            self._add_helpers(one, files, items)
        # The recording of CK's generator as if it had only registered these rows.
        text = self._dispatch.text(registered)
        pool = self._dispatch.pool_of(registered)
        seen = Recording([pool], {**files, self._dispatch.name: text}, items)
        made = read_base(self._direction, seen, Dispatch(seen)).rows
        for row in made:
            self._check(row.main.fields)
        # The kernel of this name would be compiled in place of the requested one.
        if kernel.filename in self._recording.files:
            raise NotUnderstoodError(f"CK has another kernel that it calls {kernel.filename}")
        return tuple(
            replace(row, kernels=tuple(map(self._known_helper, row.kernels))) for row in made
        )

    def _add_helpers(self, row: Registered, files: dict[str, str], items: dict[str, Any]) -> None:
        """Add sources of a row's helper kernels: CK's, or rendered by the row's object."""
        (text,) = self._dispatch.texts_of([row])
        arch, called = call_of(text)
        held = [
            value
            for _, value in _properties(row.row)
            if isinstance(getattr(type(value), "filename", None), property)
        ]
        main = traits_of(next(iter(files.values())))
        for traits in called:
            if traits in main:
                continue
            known = self._known.get((traits, arch or None))
            if known is not None:
                file = f"{known.name}.cpp"
                files[file] = known.source
                if file in self._recording.kernels:
                    items[file] = self._recording.kernels[file]
                continue
            for item in held:
                like = self._recorded_like(item)
                source = _text_of(item, self._recording.files[like.filename], like)
                if traits in traits_of(source):
                    files[item.filename], items[item.filename] = source, item

    def _recorded_like(self, item: Any) -> Any:
        for known in self._recording.kernels.values():
            if type(known) is type(item) and known.filename in self._recording.files:
                return known
        raise NotUnderstoodError(f"CK wrote no {type(item).__name__}")

    def _check(self, found: Mapping[str, FieldValue]) -> None:
        wrong = [
            f"{name} {show(found.get(name))} in place of {show(value)}"
            for name, value in sorted(self._fields.items())
            if found.get(name) != value
        ]
        if wrong or found.keys() != self._fields.keys():
            raise NotUnderstoodError(f"CK makes another kernel of it, with {', '.join(wrong)}")

    def _known_helper(self, kernel: Kernel) -> Kernel:
        """Return CK's own helper kernel if there is one: it is the same for all rows."""
        own = kernel.fields == self._fields
        return kernel if own else self._known.get((kernel.traits, kernel.arch), kernel)


def _altered_row(registered: Registered, values: Values) -> Registered:
    def copied(one: Any) -> Any:
        return _altered(one, values) if one is registered.row else one

    more = {name: copied(one) for name, one in registered.more.items()}
    return replace(registered, args=tuple(map(copied, registered.args)), more=more)


def insert_requested(
    rows: Sequence[Row], order: Sequence[Row], found: Sequence[RequestedRows]
) -> list[Row]:
    """Insert the rows of requested kernels into rows; `order` has all rows of the receipts.

    CK's own rows keep their places. A row that was made, or that the receipts do not have, comes
    before the others of its bucket; a new bucket before the first one that takes its problems.
    """
    have = {row.key for row in rows}
    requested = {row.key: row for kernel in found for row in kernel.rows}
    ordered = [row for row in order if row.key in have or row.key in requested]
    known = {row.key for row in ordered}
    for row in reversed([row for key, row in requested.items() if key not in known]):
        ordered.insert(_place(ordered, row), row)
    return ordered


def _place(ordered: Sequence[Row], row: Row) -> int:
    """Return the position of a new row; archs keep their order."""
    of_arch = [n for n, other in enumerate(ordered) if other.arch == row.arch]
    chain = [n for n in of_arch if ordered[n].fields["dtype"] == row.fields["dtype"]]
    same = [n for n in chain if ordered[n].bucket == row.bucket]
    taking = [n for n in chain if _takes(ordered[n].bucket, row.bucket)]
    last = max(chain or of_arch, default=len(ordered) - 1) + 1
    return min(same or taking, default=last)


def _takes(bucket: tuple[int, int], size: tuple[int, int]) -> bool:
    return size[0] <= bucket[0] and size[1] <= bucket[1]
