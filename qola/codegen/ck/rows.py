"""Derives the rows and kernels of a direction from the recording of CK's generator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qola.codegen.ck.link import Call, Links, NotUnderstoodError, Traits, call_of, reading_ck
from qola.codegen.ck.observe import Pool, Recording, Registered
from qola.codegen.ck.vocabulary import (
    CONDITION_FIELDS,
    Condition,
    fields_of,
    read_condition,
    without_enum,
)
from qola.codegen.types import FieldValue


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
        main: the kernel with these fields; helper kernels run before and after it.
        fields: the fields by which variants and receipts select.
        problem: the (field, value) pairs the entry's condition compares for equality.
        arch: CK's name of the architecture, None if the dispatch does not test it.
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
    fields: Mapping[str, FieldValue]
    problem: tuple[tuple[str, FieldValue], ...]
    arch: str | None
    bucket: tuple[int, int]
    steps: tuple[int, int]
    bm0: int | None = None
    conditional: bool = False
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Base:
    """The content of a receipt: rows in chain order, and kernels that no row calls.

    Attributes:
        unknown: fields that the dispatch compares and no variant can name, with their values.
    """

    rows: Sequence[Row]
    loose: Sequence[Kernel] = ()
    unknown: Mapping[str, frozenset[FieldValue]] = field(default_factory=dict)


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
        return Base(_in_chain_order(rows), loose, unknown)

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
            fields=fields,
            problem=tuple((name, fields[name]) for name in self._compared),
            arch=own.arch,
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
