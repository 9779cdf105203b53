"""A stand-in for pandas and NumPy: as much of them as AITER's generators use.

They read small CSV tables, select rows, put those of one name together and print them. For that
they need tables of text and numbers, and not 60 MB of packages in the environment of repository
rules. Values are what pandas would give a script: a column of whole numbers holds `int`, one with
a gap or a fraction holds `float`, any other holds `str`. Whatever else is asked of it raises
AttributeError or `FrameError`, so that a later script fails and says so, and prints no other table.

tests/codegen/test_codegen_asm_frames.py compares it with pandas where that is installed.
"""

from __future__ import annotations

import builtins
import csv
import io
import math
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

Value = str | int | float

#: What pandas takes for no value at all (pandas._libs.parsers.STR_NA_VALUES).
_GAPS = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_TRUTH = {"true": "True", "false": "False"}
_INT64 = 2**63


class FrameError(Exception):
    """A table that the stand-in does not read as pandas would."""


class Columns(list[str]):
    """Names of columns."""

    def tolist(self) -> list[str]:
        """Return them as a list."""
        return list(self)


@dataclass(frozen=True)
class Texts:
    """What `Series.str` gives: what is asked of texts."""

    values: Sequence[Value]

    def startswith(self, start: str) -> Series:
        """Return of each text whether it starts so; of a gap, that it does not."""
        if any(isinstance(value, int | float) and not _is_gap(value) for value in self.values):
            raise FrameError("texts of a column of numbers")
        return Series([isinstance(v, str) and v.startswith(start) for v in self.values])


class Series:
    """A column, compared with a value: rows are selected by it.

    Whatever its index is said to be, values are those of the rows in their order: AITER's
    `filter_tune_df` gives a new one the index of the table that it then selects of.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Iterable[Value], index: object = None) -> None:
        self.values = list(values)

    def __eq__(self, other: object) -> Series:  # type: ignore[override]
        # Of a column of truth values, pandas has them as such, and here they are texts.
        if not isinstance(other, builtins.str | int | float) or isinstance(other, bool):
            raise FrameError(f"a column compared with {other!r}")
        return Series([value == other for value in self.values])

    def __ne__(self, other: object) -> Series:  # type: ignore[override]
        return ~(self == other)

    def __and__(self, other: Series) -> Series:
        return Series([a and b for a, b in zip(self.truths(), other.truths(), strict=True)])

    def __or__(self, other: Series) -> Series:
        return Series([a or b for a, b in zip(self.truths(), other.truths(), strict=True)])

    def __invert__(self) -> Series:
        return Series([not value for value in self.truths()])

    def __bool__(self) -> bool:
        raise FrameError("a column as one truth value")

    def truths(self) -> list[bool]:
        """Return its values, which have to be what a comparison gave."""
        if not all(isinstance(value, bool) for value in self.values):
            raise FrameError("rows selected by what is no comparison")
        return [bool(value) for value in self.values]

    @property
    def str(self) -> Texts:
        """Its values as texts."""
        return Texts(self.values)

    def astype(self, kind: type) -> Series:
        """Return its values as texts."""
        if kind is not builtins.str:
            raise FrameError(f"a column as {kind!r}")
        return Series([value if _is_gap(value) else builtins.str(value) for value in self.values])


@dataclass(frozen=True)
class Located:
    """What `Frame.loc` gives: values by row and column."""

    data: Mapping[str, Sequence[Value]]

    def __getitem__(self, place: tuple[int, str]) -> Value:
        row, column = place
        return self.data[column][row]


class Frame:
    """A table: columns of one length.

    Attributes:
        index: numbers of its rows: those of the table that they were selected of.
    """

    def __init__(
        self, data: Mapping[str, Sequence[Value]], length: int, index: Sequence[int] | None = None
    ) -> None:
        self._data = {name: list(values) for name, values in data.items()}
        self._length = length
        self.index = list(range(length)) if index is None else index

    @property
    def columns(self) -> Columns:
        """The names of its columns, in their order."""
        return Columns(self._data)

    @property
    def iloc(self) -> Sequence[Mapping[str, Value]]:
        """Its rows, each a mapping by column."""
        return [dict(zip(self._data, row, strict=True)) for row in self._rows()]

    @property
    def loc(self) -> Located:
        """Its values by row and column."""
        if self.index != list(range(self._length)):
            raise FrameError("loc of selected rows")
        return Located(self._data)

    @property
    def values(self) -> Sequence[Sequence[Value]]:
        """Its rows; in a table of numbers alone they have one type, as in an array."""
        numbers = _widened([value for values in self._data.values() for value in values])
        every = iter(numbers)
        columns = [[next(every) for _ in values] for values in self._data.values()]
        return list(zip(*columns, strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __getitem__(self, wanted: str | Series) -> Any:
        """Return a column; or the rows for which a column of truth values says so."""
        if isinstance(wanted, str):
            return Series(self._data[wanted])
        if not isinstance(wanted, Series) or len(wanted.values) != self._length:
            raise FrameError(f"rows or columns selected by {wanted!r}")
        kept = [row for row, keep in enumerate(wanted.truths()) if keep]
        data = {name: [values[row] for row in kept] for name, values in self._data.items()}
        return Frame(data, len(kept), [self.index[row] for row in kept])

    def iterrows(self) -> Iterator[tuple[int, Mapping[str, Value]]]:
        """Yield the number and the values of each row."""
        if _numbers(value for values in self._data.values() for value in values):
            raise FrameError("iterrows of a table of numbers alone, which have one type there")
        yield from zip(self.index, self.iloc, strict=True)

    def __setitem__(self, name: str, value: Value) -> None:
        """Give a column one value in all rows."""
        if not isinstance(value, str | int | float):
            raise FrameError(f"column {name} set to {value!r}, which is no single value")
        self._data[name] = [value] * self._length

    def __len__(self) -> int:
        return self._length

    def fillna(self, value: Value) -> Frame:
        """Return it with gaps filled."""
        filled = {
            name: [value if _is_gap(item) else item for item in items]
            for name, items in self._data.items()
        }
        return Frame(filled, self._length, self.index)

    def infer_objects(self, copy: bool | None = None) -> Frame:
        """Return it as it is: its values have their own types already."""
        return self

    def itertuples(self, index: bool = True) -> Iterator[Any]:
        """Yield its rows as named tuples."""
        if index:
            raise FrameError("itertuples with an index")
        row = namedtuple("Pandas", list(self._data), rename=True)  # type: ignore[misc]
        yield from (row(*values) for values in self._rows())

    def _rows(self) -> Iterator[tuple[Value, ...]]:
        return zip(*self._data.values(), strict=True) if self._data else iter(())


def read_csv(source: str | Path | io.StringIO) -> Frame:
    """Read a CSV table with a header.

    Raises:
        FrameError: rows of several lengths, columns of one name, or no header.
    """
    text = source.read() if isinstance(source, io.StringIO) else Path(source).read_text("utf-8-sig")
    # A line of blanks alone does not count; one of commas does.
    lines = [row for row in csv.reader(io.StringIO(text)) if len(row) > 1 or "".join(row).strip()]
    if not lines:
        raise FrameError("no columns to parse from file")
    header, *rows = lines
    if len(set(header)) < len(header) or "" in header:
        raise FrameError(f"columns without a name, or two of one name: {', '.join(header)}")
    for number, row in enumerate(rows, 2):
        if len(row) > len(header):
            raise FrameError(f"row {number} has {len(row)} fields, the header {len(header)}")
    filled = [row + [""] * (len(header) - len(row)) for row in rows]
    columns = {name: _typed([row[i] for row in filled]) for i, name in enumerate(header)}
    return Frame(columns, len(rows))


def concat(frames: Iterable[Frame], ignore_index: bool = False) -> Frame:
    """Return the rows of all tables, with the columns of each in the order first seen.

    A column that a table with rows lacks has gaps there, and its whole numbers become `float`.
    """
    if not ignore_index:
        raise FrameError("concat that keeps the index")
    parts = list(frames)
    names = list(dict.fromkeys(name for frame in parts for name in frame.columns))
    columns: dict[str, Sequence[Value]] = {}
    for name in names:
        values: list[Value] = []
        for frame in parts:
            have = name in frame.columns
            values += [row[name] for row in frame.iloc] if have else [math.nan] * len(frame)
        columns[name] = _widened(values)
    return Frame(columns, sum(len(frame) for frame in parts))


def _typed(texts: Sequence[str]) -> list[Value]:
    """Return a column's fields with the type that all of them have."""
    for convert in (_integers, _floats, _truths):
        values = convert(texts)
        if values is not None:
            return values
    return [math.nan if text in _GAPS else text for text in texts]


def _integers(texts: Sequence[str]) -> list[Value] | None:
    values = _all(texts, int)
    fits = values is not None and all(-_INT64 <= value < _INT64 for value in values)
    return list(values) if values is not None and fits else None


def _floats(texts: Sequence[str]) -> list[Value] | None:
    values = _all(texts, lambda text: math.nan if text in _GAPS else float(text))
    return list(values) if values is not None else None


def _truths(texts: Sequence[str]) -> list[Value] | None:
    """Return truth values as text: NumPy's are no numbers, and print like this."""
    values = [_TRUTH.get(text.lower()) for text in texts]
    found = [value for value in values if value is not None]
    return list(found) if len(found) == len(values) else None


def _all(texts: Sequence[str], convert: Callable[[str], Any]) -> list[Any] | None:
    if not texts or any("_" in text for text in texts):  # 1_000 is a number to Python alone
        return None
    try:
        return [convert(text) for text in texts]
    except ValueError:
        return None


def _numbers(values: Iterable[Value]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _widened(values: list[Value]) -> list[Value]:
    """Return a column of numbers as floats if any of them is one; others as they are."""
    if _numbers(values) and any(isinstance(value, float) for value in values):
        return [float(value) for value in values]
    return values


def _is_gap(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def install() -> None:
    """Make ``import pandas`` and ``import numpy`` find the stand-in, in this process."""
    pandas, numpy = ModuleType("pandas"), ModuleType("numpy")
    vars(pandas).update(read_csv=read_csv, concat=concat, Series=Series)
    vars(pandas)["set_option"] = lambda name, value: None
    # Only ever asked whether a value is one: here they are Python's own.
    vars(numpy).update(integer=int)
    sys.modules.update(pandas=pandas, numpy=numpy)
