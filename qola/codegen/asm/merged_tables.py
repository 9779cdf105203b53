"""Merges tuning tables as AITER's `update_config_files` does when AITER runs.

AITER does this with pandas, and differently over time (`qola.aiter.core_file`). Its sort is
not stable: of rows of one problem with equal times, it keeps any. Here the first one wins, in the
order of the tables, of which AITER reads those of model_configs/ in the order of the file system.

tests/codegen/test_merged_tables.py compares the tables with AITER's own function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qola.aiter.core_file import MergedTable, MergeRule
from qola.common.extras import needs
from qola_base.errors import CodegenError, Finding

if TYPE_CHECKING:
    import pandas

_TAG = "_tag"
"""Column that distinguishes rows of a problem; AITER compares tables without it."""


def merge_tables(root: Path, table: MergedTable) -> str:
    """Return the text of a merged table.

    Raises:
        CodegenError: a table cannot be read, or AITER could not merge the tables.
    """
    name = table.path.rpartition("/")[2]
    rule = table.rule
    if rule is None:
        found = f"AITER merges {', '.join(table.files)} by a rule that qola does not know"
        expected = "update_config_files of core.py as in the 0.1.7 wheels or in later trees"
        fix = "name a table or none in the module's blob_gen_cmd"
        raise CodegenError(Finding(name, found, expected, fix))
    with needs("generators", f"{name}, which AITER merges"):
        import pandas  # noqa: PLC0415
    frames = {file: _read(root, file) for file in table.files}
    columns = _columns(rule, frames)
    parts = [_with_columns(frame, columns, file) for file, frame in frames.items() if len(frame)]
    if not parts:
        return f"{','.join(columns)}\n"
    merged = pandas.concat(parts, ignore_index=True)
    if table.untuned:
        problem = (*_read(root, table.untuned).columns, *rule.more_keys)
        merged = _fastest(merged, [key for key in problem if key in columns], table.files)
        if not rule.is_sorted:
            merged = merged.sort_index()
    text: str = merged.to_csv(index=False)
    return text


def _read(root: Path, file: str) -> pandas.DataFrame:
    import pandas  # noqa: PLC0415

    try:
        return pandas.read_csv(root / file, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise CodegenError(Finding(file, str(error), "a CSV table with a header")) from None


def _columns(rule: MergeRule, frames: Mapping[str, pandas.DataFrame]) -> list[str]:
    """Return the columns of the merged table, with AITER's check or extension of them."""
    columns: list[str] = []
    for file, frame in frames.items():
        new = [name for name in frame.columns if name not in columns]
        if not columns:
            columns = new
        elif rule.is_filled:
            before = "tflops" if "tflops" in columns else columns[-1]
            for name in new:
                columns.insert(columns.index(before), name)
        else:
            if _without_tag(frame.columns) != _without_tag(columns):
                found = f"columns {', '.join(frame.columns)}"
                expected = f"{', '.join(columns)}, as {next(iter(frames))} has"
                raise CodegenError(Finding(file, found, expected))
            columns += new
    return columns


def _without_tag(columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name != _TAG]


def _with_columns(frame: pandas.DataFrame, columns: Sequence[str], file: str) -> pandas.DataFrame:
    """Return a table with all columns in one order."""
    missing = [name for name in columns if name not in frame]
    if "gfx" in missing:
        found = "no column gfx, while other tables of the same name have one"
        expected = "the arch of each row: AITER guesses it by the GPU of the machine"
        raise CodegenError(Finding(file, found, expected))
    filled = frame.assign(**{name: "" if name == _TAG else 0 for name in missing})
    return filled[list(columns)]


def _fastest(
    merged: pandas.DataFrame, keys: Sequence[str], files: Sequence[str]
) -> pandas.DataFrame:
    """Return the fastest row of each problem, sorted by time.

    AITER's later function refuses two rows of a problem, but deletes the slower one from the tables
    of the tree, so that its next call has the same result.
    """
    if "us" not in merged:
        found, expected = f"columns {', '.join(merged)}", "a column us, the time of each row"
        raise CodegenError(Finding(", ".join(files), found, expected))
    if merged["us"].dtype.kind not in "if":
        found, expected = "a text in place of a time", "a number in each row"
        raise CodegenError(Finding(f"us of {', '.join(files)}", found, expected))
    return merged.sort_values("us", kind="stable").drop_duplicates(subset=list(keys))
