"""qola's replacement for pandas: the text that `hsa/codegen.py` prints for a table.

The expected texts in tests/golden/asm/frames.json are the output of pandas 3.1.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from qola.codegen.asm import frames

#: Tables by name. A table consists of files that the script concatenates.
TABLES: dict[str, tuple[str, ...]] = {
    "numbers and names": ("dtype,hdim,co\nbf16,128,a.co\nfp16,64,b.co\n",),
    "two of one form": ("a,b\n1,x\n", "a,b\n2,y\n"),
    "a column that one lacks": ("a,b\n1,x\n2,y\n", "a\n3\n"),
    "columns in another order": ("a,b\n1,x\n", "b,a\ny,2\n"),
    "a gap among numbers": ("a,b\n1,x\n,y\n",),
    "a gap among names": ("a,b\n1,x\n2,\n",),
    "words that are gaps": ("a,b\n1,NA\n2,None\n3,null\n4,nan\n",),
    "fractions": ("a,b\n0.5,x\n2,y\n",),
    "exponents": ("a\n1e3\n2\n",),
    "signs": ("a\n-1\n+2\n",),
    "leading zeros": ("a\n007\n8\n",),
    "truth": ("a,b\nTrue,x\nFalse,y\n",),
    "truth and a number": ("a\nTrue\n1\n",),
    "hexadecimal": ("a\n0x10\n2\n",),
    "underscores": ("a\n1_000\n2\n",),
    "blanks around": ("a, b\n 1, x\n2 ,y\n",),
    "a header alone": ("a,b\n",),
    "a header alone beside rows": ("a,b\n", "a,b\n1,x\n"),
    "rows beside a header alone": ("a,b\n1,x\n", "a,b,c\n"),
    "blank lines": ("a,b\n\n1,x\n   \n2,y\n\n",),
    "a line of commas": ("a,b\n,\n1,x\n",),
    "short rows": ("a,b,c\n1,x\n2,y,z\n",),
    "quotes": ('a,b\n1,"x,y"\n2,"say ""so"""\n',),
    "large numbers": ("a\n9223372036854775807\n-9223372036854775808\n",),
    "too large numbers": ("a\n9223372036854775808.5\n",),
    "words among numbers": ("a,b\n1,x\ntwo,y\n",),
    "line ends of Windows": ("a,b\r\n1,x\r\n2,y\r\n",),
    "one column of gaps": ("a,b\n1,\n2,\n",),
}
GOLDEN = Path(__file__).parents[1] / "golden/asm/frames.json"


def print_tables(pandas: Any, numpy: Any, files: Sequence[str]) -> str:
    """Return the text that the script prints for tables in files: columns, types, rows."""
    pandas.set_option("display.width", 200)
    parts = []
    for number, text in enumerate(files):
        frame = pandas.read_csv(io.StringIO(text))
        frame["arch"] = f"gfx{number}"
        parts.append(frame)
    whole = pandas.concat(parts, ignore_index=True).fillna(0).infer_objects(copy=False)
    columns = whole.columns.tolist()
    lines = [",".join(columns)]
    try:
        first = whole.iloc[0]
        kinds = [isinstance(first[name], (int, float, numpy.integer)) for name in columns]
        lines.append(",".join("int" if kind else "text" for kind in kinds))
    except IndexError:
        lines.append("no row")
    whole["more"] = 0
    assert "more" in whole.columns
    lines += [
        "|".join(
            f"{int(value):>4}" if str(value).replace(".", "", 1).isdigit() else f'"{value}"'
            for value in row
        )
        for row in whole.itertuples(index=False)
    ]
    return "\n".join(lines)


NUMPY = SimpleNamespace(integer=int)
PANDAS = ModuleType("pandas")
vars(PANDAS).update(
    read_csv=frames.read_csv,
    concat=frames.concat,
    set_option=lambda name, value: None,
    Series=frames.Series,
)


@pytest.mark.parametrize("name", TABLES)
def test_output_equals_pandas(name: str) -> None:
    """Prevents: a table row with another number or type than in AITER's build."""
    assert print_tables(PANDAS, NUMPY, TABLES[name]) == json.loads(GOLDEN.read_text())[name]


TUNED = """gfx,cu_num,M,kernelName,us
gfx942,304,1,a,0.5
gfx942,80,2,b,1.5
gfx950,256,3,_ZNc,2
gfx950,256,4,,2
"""


def select_rows(pandas: Any, text: str) -> list[list[Any]]:
    """Return the rows of a table that AITER's `filter_tune_df` and a script select."""
    table = pandas.read_csv(io.StringIO(text))
    mask = pandas.Series([False] * len(table), index=table.index)
    for gfx, cu_num in (("gfx942", 304), ("gfx950", 256)):
        mask |= (table["gfx"] == gfx) & (table["cu_num"] == cu_num)
    filtered = table[mask]
    filtered = filtered[~filtered["kernelName"].astype(str).str.startswith("_ZN")]
    rows = [[number, int(row["M"]), str(row["kernelName"])] for number, row in filtered.iterrows()]
    assert len(filtered) == len(rows)
    assert list(filtered.index) == [number for number, *_ in rows]
    return rows


def test_selected_rows_equal_pandas() -> None:
    """Prevents: GEMM kernels tuned for another GPU, or none, in a dispatch."""
    assert select_rows(PANDAS, TUNED) == [[0, 1, "a"], [3, 4, "nan"]]
    frame = frames.read_csv(io.StringIO(TUNED))
    with pytest.raises(frames.FrameError, match="loc of selected rows"):
        frame[frame["M"] == 2].loc[1, "M"]
    with pytest.raises(frames.FrameError, match="loc of selected rows"):
        frame[frame["M"] != 2].fillna(0).loc[1, "M"]
    assert ("M" in frame, "N" in frame) == (True, False)
    assert list(frame[frame["M"] == 5].iterrows()) == []


OPUS = """M,kernelId,solidx,libtype
1,7,,opus
2,8,9,opus
2,8,9,opus
3,x,,opus
4,5,,triton
"""


def combine(pandas: Any, text: str, folder: Path) -> str:
    """Return the table that AITER's opus_gemm/gen_instances.py writes and reads again."""
    table = pandas.read_csv(io.StringIO(text))
    table = table[table["libtype"] == "opus"]
    assert not table.empty
    kids = pandas.to_numeric(table["solidx"], errors="coerce")
    kids = kids.fillna(pandas.to_numeric(table["kernelId"], errors="coerce"))
    assert [int(kid) for kid in kids.dropna().tolist()] == [7, 9, 9]
    table = table[kids.isin({7, 9}) & kids.apply(lambda kid: not pandas.isna(kid))].copy()
    table["solidx"] = table["solidx"].fillna(pandas.to_numeric(table["kernelId"], errors="coerce"))
    table = table.drop(columns=["kernelId"]).rename(columns={"libtype": "lib"})
    table["solidx"] = table["solidx"].astype(int)
    pandas.concat([table], ignore_index=True).drop_duplicates().to_csv(folder / "t", index=False)
    return (folder / "t").read_text("utf-8")


def test_written_table_equals_pandas(tmp_path: Path) -> None:
    """Prevents: GEMM kernels of later trees for no tuned problem, or for wrong problems."""
    vars(PANDAS).update(to_numeric=frames.to_numeric, isna=frames.is_gap)
    assert combine(PANDAS, OPUS, tmp_path) == "M,solidx,lib\n1,7,opus\n2,9,opus\n"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda frame: frame["M"].astype(float), "a column as <class 'float'>"),
        (lambda frame: frame["kernelName"].astype(int), "a column as <class 'int'>"),
        (lambda frame: frame["M"].fillna(0), "a column filled with 0"),
        (lambda frame: frames.to_numeric(frame["M"], "raise"), "to_numeric with errors='raise'"),
        (lambda frame: frame.to_csv("file"), "to_csv with an index"),
        (lambda frame: frame["M"].astype("str"), "a column as 'str'"),
        (lambda frame: frame[frame["M"] == frame["us"]], "a column compared with"),
        (lambda frame: frame[frame["M"]], "is not a comparison"),
        (lambda frame: ~frame["M"], "is not a comparison"),
        (lambda frame: frame[frame["M"] == 2][frame["M"] == 2], "selected by"),
        (lambda frame: frame[["M"]], "selected by"),
        (lambda frame: bool(frame["M"] == 2), "one truth value"),
        (lambda frame: frame["M"].str.startswith("1"), "a column of numbers"),
        (lambda frame: list(frames.read_csv(io.StringIO("a\n1\n")).iterrows()), "one type"),
        (lambda frame: frame.__setitem__("b", [1]), "not a single value"),
        (lambda frame: list(frame.itertuples()), "itertuples with an index"),
        (lambda frame: frames.concat([frame]), "keeps the index"),
    ],
)
def test_unsupported_operations_are_refused(
    operation: Callable[[frames.Frame], object], message: str
) -> None:
    """Prevents: all rows, or other rows than pandas selects, without an error."""
    with pytest.raises(frames.FrameError, match=message):
        operation(frames.read_csv(io.StringIO(TUNED)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no columns to parse from file"),
        ("a,b\n1,2,3\n", "row 2 has 3 fields, the header 2"),
        ("a,a\n1,2\n", "two of one name: a, a"),
        ("a,\n1,2\n", "columns without a name"),
    ],
)
def test_unsupported_tables_are_refused(text: str, message: str) -> None:
    """Prevents: shifted columns in files that pandas reads by other rules."""
    with pytest.raises(frames.FrameError) as error:
        frames.read_csv(io.StringIO(text))
    assert message in str(error.value)


VALUES: dict[str, list[list[Any]]] = {
    "a,b\n1,x\n2,y\n": [[1, "x"], [2, "y"]],
    "a,b\n1,2\n3,4\n": [[1, 2], [3, 4]],
    "a,b\n1,0.5\n3,4\n": [[1.0, 0.5], [3.0, 4.0]],
}


@pytest.mark.parametrize("text", VALUES)
def test_values_have_a_common_type(text: str) -> None:
    """Prevents: a tile size printed with or without a fraction, unlike in AITER's build."""
    # Numbers of an array have a common type; each column of a table has a separate type.
    frame = frames.read_csv(io.StringIO(text))
    assert repr([list(row) for row in frame.values]) == repr(VALUES[text])
    assert frame.loc[1, "a"] == VALUES[text][1][0]
    assert repr(frame.loc[1, "a"]) == text.splitlines()[2].partition(",")[0]


def test_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Prevents: a byte order mark in the name of the first column."""
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert frames.read_csv(tmp_path / "t.csv").columns.tolist() == ["a", "b"]


def test_scripts_import_the_replacement() -> None:
    """Prevents: a script that imports an installed pandas, or fails without pandas."""
    code = (
        "from qola.codegen.asm import frames; frames.install(); import pandas as pd, numpy as np;"
        "assert pd.read_csv is frames.read_csv and isinstance(1, np.integer); pd.set_option('a', 1)"
    )
    root = Path(frames.__file__).parents[3]
    command = [sys.executable, "-S", "-c", code]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(root)})
