"""A stand-in for the parts of pandas and NumPy that AITER's generators use.

The generators read small CSV tables, select rows, join tables of one name and print them. pandas
and NumPy are 60 MB of binary wheels for one Python version; a repository rule runs any Python.
Values have the types that pandas gives them: a column of whole numbers holds `int`, one with a gap
or a fraction `float`, any other `str`. Any other use raises AttributeError, TypeError or
`FrameError`, so that a script that needs more fails instead of printing another table.

tests/codegen/test_codegen_asm_frames.py compares it with the output of pandas 3.1.
"""

from __future__ import annotations

import builtins
import csv
import io
import itertools
import math
import sys
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Value = str | int | float

#: Texts that pandas reads as a gap (pandas._libs.parsers.STR_NA_VALUES).
_GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_INT64 = 2**63


class FrameError(Exception):
    """A use of a table for which the stand-in might differ from pandas."""


class EmptyDataError(FrameError):
    """A table without a header."""


class Columns(list[str]):
    """Names of columns."""

    def tolist(self) -> list[str]:
        """Return the names as a list."""
        return list(self)


class Series:
    """A column, or the truth values that a comparison of a column gives.

    The index is ignored: the values belong to consecutive rows. AITER's `filter_tune_df` passes the
    index of the table from which it then selects.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Iterable[Value], index: object = None) -> None:
        self.values = list(values)

    def __eq__(self, other: object) -> Series:  # type: ignore[override]
        # pandas has truth values as such; here a column of a table has them as text.
        if not isinstance(other, builtins.str | int | float) or isinstance(other, bool):
            raise FrameError(f"a column compared with {other!r}")
        return Series(value == other for value in self.values)

    def __ne__(self, other: object) -> Series:  # type: ignore[override]
        return ~(self == other)

    def __and__(self, other: Series) -> Series:
        return Series(a and b for a, b in zip(self.truths(), other.truths(), strict=True))

    def __or__(self, other: Series) -> Series:
        return Series(a or b for a, b in zip(self.truths(), other.truths(), strict=True))

    def __invert__(self) -> Series:
        return Series(not value for value in self.truths())

    def __bool__(self) -> bool:
        raise FrameError("a column as one truth value")

    def truths(self) -> list[bool]:
        """Return the values of a comparison."""
        if not all(isinstance(value, bool) for value in self.values):
            raise FrameError("rows selected by a column that is not a comparison")
        return [bool(value) for value in self.values]

    @property
    def str(self) -> Series:
        """The column itself: `startswith` needs no accessor here, as it does in pandas."""
        return self

    def startswith(self, start: builtins.str) -> Series:
        """Compare the beginning of each text; a gap does not match."""
        if not all(isinstance(value, builtins.str) or is_gap(value) for value in self.values):
            raise FrameError("texts of a column of numbers")
        return Series(isinstance(v, builtins.str) and v.startswith(start) for v in self.values)

    def astype(self, kind: type) -> Series:
        """Convert the values to text, where gaps stay gaps, or numbers without gaps to int."""
        if kind is int and _are_numbers(self.values) and not any(map(is_gap, self.values)):
            return Series(map(int, self.values))
        if kind is not builtins.str:
            raise FrameError(f"a column as {kind!r}")
        return Series(value if is_gap(value) else builtins.str(value) for value in self.values)

    @property
    def loc(self) -> Sequence[Value]:
        """The values by their position: of a table with all of its rows."""
        return self.values

    def tolist(self) -> list[Value]:
        """Return the values as a list."""
        return list(self.values)

    def dropna(self) -> Series:
        """Return the values without gaps."""
        return Series(value for value in self.values if not is_gap(value))

    def fillna(self, other: Series) -> Series:
        """Return the values, with those of another column in place of gaps."""
        if not isinstance(other, Series):
            raise FrameError(f"a column filled with {other!r}")
        pairs = zip(self.values, other.values, strict=True)
        return Series(_widened([more if is_gap(value) else value for value, more in pairs]))

    def isin(self, values: Collection[Value]) -> Series:
        """Compare each value with several."""
        return Series(value in values for value in self.values)

    def apply(self, function: Callable[[Value], Any]) -> Series:
        """Return the result of a function for each value."""
        return Series(map(function, self.values))


class Frame:
    """A table of columns that have the same length.

    Attributes:
        index: numbers of the rows in the table from which they were selected.
    """

    def __init__(self, data: Mapping[str, Iterable[Value]], index: Iterable[int]) -> None:
        self._data = {name: list(values) for name, values in data.items()}
        self.index = list(index)

    @property
    def columns(self) -> Columns:
        """The names of the columns, in order."""
        return Columns(self._data)

    @property
    def iloc(self) -> Sequence[Mapping[str, Value]]:
        """The rows, each as a mapping by column."""
        return [dict(zip(self._data, row, strict=True)) for row in self._rows()]

    @property
    def loc(self) -> Frame:
        """The table itself, which is indexed by row and column."""
        if self.index != list(range(len(self))):
            raise FrameError("loc of selected rows")
        return self

    @property
    def values(self) -> Sequence[Sequence[Value]]:
        """The rows. If all values are numbers, they have one type, as in an array."""
        every = iter(_widened([value for values in self._data.values() for value in values]))
        columns = [[next(every) for _ in values] for values in self._data.values()]
        return list(zip(*columns, strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self._data

    def __getitem__(self, key: str | tuple[int, str] | Series) -> Any:
        """Return a column, the value at a row and column, or the rows that a comparison selects."""
        if isinstance(key, str):
            return Series(self._data[key])
        if isinstance(key, tuple):
            return self._data[key[1]][key[0]]
        if not isinstance(key, Series) or len(key.values) != len(self):
            raise FrameError(f"rows or columns selected by {key!r}")
        kept = key.truths()
        data = {name: itertools.compress(values, kept) for name, values in self._data.items()}
        return Frame(data, itertools.compress(self.index, kept))

    def __setitem__(self, name: str, value: Value | Series) -> None:
        """Set a column to one value in all rows, or to another column of these rows."""
        if isinstance(value, Series) and len(value.values) == len(self):
            self._data[name] = list(value.values)
            return
        if not isinstance(value, str | int | float):
            raise FrameError(f"column {name} set to {value!r}, which is not a single value")
        self._data[name] = [value] * len(self)

    @property
    def empty(self) -> bool:
        """Whether the table has no rows."""
        return not self.index

    def copy(self) -> Frame:
        """Return a table of its own with the same content."""
        return Frame(self._data, self.index)

    def drop(self, *, columns: Sequence[str]) -> Frame:
        """Return the table without some columns."""
        data = {name: values for name, values in self._data.items() if name not in columns}
        return Frame(data, self.index)

    def rename(self, *, columns: Mapping[str, str]) -> Frame:
        """Return the table with other names of columns."""
        data = {columns.get(name, name): values for name, values in self._data.items()}
        return Frame(data, self.index)

    def drop_duplicates(self) -> Frame:
        """Return the first of equal rows each."""
        seen: set[tuple[Value | None, ...]] = set()
        first = []
        for row in self._rows():
            key = tuple(None if is_gap(value) else value for value in row)
            first.append(key not in seen)
            seen.add(key)
        return self[Series(first)]  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.index)

    def iterrows(self) -> Iterator[tuple[int, Mapping[str, Value]]]:
        """Yield the number and the values of each row."""
        if len(self) and _are_numbers(v for values in self._data.values() for v in values):
            raise FrameError("iterrows of a table of numbers only, which get one type in pandas")
        yield from zip(self.index, self.iloc, strict=True)

    def fillna(self, value: Value) -> Frame:
        """Return the table with a value in place of each gap."""
        data = self._data.items()
        filled = {name: [value if is_gap(v) else v for v in values] for name, values in data}
        return Frame(filled, self.index)

    def infer_objects(self, copy: bool | None = None) -> Frame:
        """Return the table: each value already has its own type."""
        return self

    def itertuples(self, index: bool = True) -> Iterator[Any]:
        """Yield the rows as named tuples."""
        if index:
            raise FrameError("itertuples with an index")
        row = namedtuple("Pandas", list(self._data), rename=True)  # type: ignore[misc]
        yield from (row(*values) for values in self._rows())

    def to_csv(self, path: str | Path, index: bool = True) -> None:
        """Write the table to a file."""
        if index:
            raise FrameError("to_csv with an index")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(self.csv_text())

    def csv_text(self) -> str:
        """Return the table as text; gaps are empty fields."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._data)
        writer.writerows(["" if is_gap(value) else value for value in row] for row in self._rows())
        return text.getvalue()

    def _rows(self) -> Iterator[tuple[Value, ...]]:
        return zip(*self._data.values(), strict=True) if self._data else iter(())


def read_csv(source: str | Path | io.StringIO) -> Frame:
    """Read a CSV table with a header.

    Raises:
        FrameError: a row is longer than the header, two columns share a name, or the header is
            missing.
    """
    text = source.read() if isinstance(source, io.StringIO) else Path(source).read_text("utf-8-sig")
    # pandas skips a blank line, but not a line of commas.
    lines = [row for row in csv.reader(io.StringIO(text)) if len(row) > 1 or "".join(row).strip()]
    if not lines:
        raise EmptyDataError("no columns to parse from file")
    header, *rows = lines
    if len(set(header)) < len(header) or "" in header:
        raise FrameError(f"columns without a name, or two of one name: {', '.join(header)}")
    for number, row in enumerate(rows, 2):
        if len(row) > len(header):
            raise FrameError(f"row {number} has {len(row)} fields, the header {len(header)}")
    filled = [row + [""] * (len(header) - len(row)) for row in rows]
    columns = {name: _typed([row[i] for row in filled]) for i, name in enumerate(header)}
    return Frame(columns, range(len(rows)))


def concat(frames: Iterable[Frame], ignore_index: bool = False) -> Frame:
    """Return the rows of all tables; columns are in the order in which they first occur.

    A table that lacks a column has gaps in it, and the column's whole numbers become `float`.
    """
    if not ignore_index:
        raise FrameError("concat that keeps the index")
    parts = list(frames)
    rows = [row for frame in parts for row in frame.iloc]
    names = dict.fromkeys(name for frame in parts for name in frame.columns)
    columns = {name: _widened([row.get(name, math.nan) for row in rows]) for name in names}
    return Frame(columns, range(len(rows)))


def to_numeric(column: Series, errors: str) -> Series:
    """Convert the values of a column to numbers; others become gaps."""
    if errors != "coerce":
        raise FrameError(f"to_numeric with errors={errors!r}")
    if _are_numbers(column.values):
        return Series(column.values)
    return Series(_widened([_number(value) for value in column.values]))


def _number(value: Value) -> Value:
    found = _typed([str(value)])[0]
    return found if isinstance(found, int | float) else math.nan


def _typed(texts: Sequence[str]) -> list[Any]:
    """Convert the fields of a column to int, float or str: the first type that fits all."""
    gaps = [math.nan if text in _GAPS else text for text in texts]
    # Only Python reads 1_000 as a number.
    if texts and not any("_" in text for text in texts):
        try:
            numbers = list(map(int, texts))
            if all(-_INT64 <= number < _INT64 for number in numbers):
                return numbers
        except ValueError:
            pass
        try:
            return list(map(float, gaps))
        except ValueError:
            pass
        # As text: NumPy's truth values are not numbers, and print like this.
        if all(text.lower() in ("true", "false") for text in texts):
            return [text.capitalize() for text in texts]
    return gaps


def _are_numbers(values: Iterable[Value]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _widened(values: list[Value]) -> list[Value]:
    """Convert numbers to float if one of them is a float; other columns stay as they are."""
    if _are_numbers(values) and any(isinstance(value, float) for value in values):
        return [float(value) for value in values]
    return values


def is_gap(value: Value) -> bool:
    """Return whether a value is a gap."""
    return isinstance(value, float) and math.isnan(value)


def install() -> None:
    """Make ``import pandas`` and ``import numpy`` of this process find the stand-in."""
    pandas, numpy, errors = (ModuleType(name) for name in ("pandas", "numpy", "pandas.errors"))
    vars(errors).update(EmptyDataError=EmptyDataError)
    vars(pandas).update(read_csv=read_csv, concat=concat, Series=Series, errors=errors)
    vars(pandas).update(isna=is_gap, to_numeric=to_numeric)
    vars(pandas)["set_option"] = lambda name, value: None
    # Scripts only use it in isinstance, and values are Python's own.
    vars(numpy).update(integer=int)
    sys.modules.update(pandas=pandas, numpy=numpy)
