"""Reads the CSV tables of AITER's later trees: which .co file serves which problems.

``hsa/<arch>/<module>/**/*.csv`` has a row for each kernel; `hsa/codegen.py -m <module>` makes a C++
table of all of them, and AITER's C++ selects and loads by that. qola only interprets the columns by
which variants select: dtype, hdim_q, hdim_v, mask and mode.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from qola.aiter.tree import AiterTree
from qola.codegen.asm.domain import Variant, serves_any
from qola_base.errors import CodegenError, Finding

#: Head dims that AITER's backward pads to (get_padded_hdim in csrc/cpp_itfs/mha_bwd.cu).
_BWD_PADDED = (64, 128, 192)
#: Tables of kernels that run before and after the main one of a backward.
_HELPERS = ("_odo", "_dq_convert", "_dq_shuffle")
#: A whole number, also as pandas writes a column with gaps; or a gap.
_WHOLE = re.compile(r"(-?\d+)(?:\.0*)?|")
_BLOCK_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_LINE_COMMENT = re.compile(r"\s*(?:(?<!:)//|#|(?<=\s);)")


@dataclass(frozen=True)
class ConfigRow:
    """One row of a table: a kernel and the problems it is for.

    Attributes:
        table: name of its table without suffix, as in AITER's C++.
        fields: texts by column.
        files: tree-relative paths of its .co file; several if the library picks one by the
            device's compute units (MI300, MI308).
        place: its file and line, for messages.
    """

    arch: str
    table: str
    fields: Mapping[str, str]
    files: tuple[str, ...]
    place: str = ""

    @property
    def is_helper(self) -> bool:
        """Whether its kernel is a helper of the main kernel of a backward."""
        return self.table.endswith(_HELPERS)

    def number(self, column: str) -> int | None:
        """Return a whole number, None if the table lacks the column.

        A gap is 0, as in `hsa/codegen.py`.

        Raises:
            CodegenError: it is not a whole number.
        """
        if column not in self.fields:
            return None
        text = self.fields[column].strip()
        if match := _WHOLE.fullmatch(text):
            return int(match[1] or 0)
        expected = "a whole number, or nothing, which is 0"
        fix = "use an AITER tree whose tables have numbers in this column"
        raise CodegenError(Finding(self.place, f"{column} = {text}", expected, fix))


@dataclass(frozen=True)
class ConfigTable:
    """One CSV file of the tree."""

    arch: str
    file: str
    columns: tuple[str, ...]
    rows: tuple[ConfigRow, ...]

    def text(self, rows: Sequence[ConfigRow]) -> str:
        """Return the table with only these rows, as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[row.fields[name] for name in self.columns] for row in rows])
        return out.getvalue()


_FIX = "use an AITER tree whose tables hsa/codegen.py reads"


def read_tables(tree: AiterTree, module: str) -> tuple[ConfigTable, ...]:
    """Read the tables of one module for all archs, sorted by file.

    Raises:
        CodegenError: the module has no table, or a file is not such a table.
    """
    found = sorted((tree.root / tree.hsa_dir).glob(f"*/{module}/**/*.csv"))
    if not found:
        raise CodegenError(
            Finding(
                f"{tree.hsa_dir}/codegen.py -m {module}",
                f"no table {tree.hsa_dir}/<arch>/{module}/**/*.csv",
                "a table for at least one arch",
                "use an AITER tree that has the folder, or leave the source that includes "
                f"asm_{module}_configs.hpp out (drop_srcs)",
            )
        )
    return tuple(_read_table(tree, path.relative_to(tree.root).as_posix()) for path in found)


def _read_table(tree: AiterTree, file: str) -> ConfigTable:
    try:
        lines = [*_without_comments((tree.root / file).read_text(encoding="utf-8-sig"))]
        reader = csv.reader(f"{line}\n" for _, line in lines)
        columns = next(reader, [])
        rows = [(lines[reader.line_num - 1][0], row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        found = f"{type(error).__name__}: {error}"
        raise CodegenError(Finding(file, found, "a CSV table in UTF-8", _FIX)) from None
    widths = {len(row) for _, row in rows}
    if not {"knl_name", "co_name"} <= set(columns) or widths - {len(columns)}:
        found = f"columns {', '.join(columns) or 'none'}, rows of {sorted(widths)} fields"
        expected = "a CSV table with the columns knl_name and co_name, and all fields in each row"
        raise CodegenError(Finding(file, found, expected, _FIX))
    arch = file.removeprefix(f"{tree.hsa_dir}/").partition("/")[0]
    name, folder = PurePosixPath(file).stem, posixpath.dirname(file)
    read = []
    for number, row in rows:
        fields = dict(zip(columns, row, strict=True))
        files = _co_files(tree, folder, fields["co_name"].strip())
        read.append(ConfigRow(arch, name, fields, files, f"{file}:{number}"))
    return ConfigTable(arch, file, tuple(columns), tuple(read))


def _without_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that is not blank, without comments."""
    number = 0
    # A block comment leaves a mark for every line break in it.
    for marked in _BLOCK_COMMENT.sub(lambda m: "\0" * m[0].count("\n"), text).splitlines():
        number += 1 + marked.count("\0")
        line = marked.replace("\0", "")
        if line.strip() and not line.lstrip().startswith(("//", "#", ";")):
            comment = _LINE_COMMENT.search(line) if '"' not in line else None
            yield number, line[: comment.start()] if comment else line


def _co_files(tree: AiterTree, folder: str, name: str) -> tuple[str, ...]:
    """Return the files that a library may load for a row, relative to the tree.

    The file is in the table's folder. If it is missing there and subfolders have code objects, the
    library picks a subfolder by the device, so that each of them must have the file.
    """
    file = posixpath.normpath(f"{folder}/{name}")
    if (tree.root / file).is_file():
        return (file,)
    parts = sorted(path.name for path in (tree.root / folder).iterdir() if any(path.glob("*.co")))
    return tuple(posixpath.normpath(f"{folder}/{part}/{name}") for part in parts) or (file,)


def row_fits(variant: Variant, row: ConfigRow, module: str, direction: str) -> bool:
    """Whether a row serves a problem of the variant.

    A missing column matches everything. For helper kernels of a backward only the mode and one of
    the head dims count: some serve every dtype and mask.
    """
    if not serves_any(variant, module) or _mode(row, module) not in variant.mode:
        return False
    hdims = [padded(direction, *hdim) for hdim in variant.hdim or ()]
    q, v = row.number("hdim_q"), row.number("hdim_v")
    if row.is_helper:
        return variant.hdim is None or any(q == a or v == b for a, b in hdims)
    mask = row.number("mask")
    return (
        (variant.dtype is None or row.fields.get("dtype", "").strip() in variant.dtype)
        and (mask is None or (mask != 0) in variant.mask)
        and (variant.hdim is None or any(q in (None, a) and v in (None, b) for a, b in hdims))
    )


def padded(direction: str, hdim_q: int, hdim_v: int) -> tuple[int, int]:
    """Return the head dims of the rows that serve a problem."""
    if direction == "bwd" and hdim_q == hdim_v:
        top = next((top for top in _BWD_PADDED if hdim_q <= top), hdim_q)
        return top, top
    return hdim_q, hdim_v


def _mode(row: ConfigRow, module: str) -> str:
    """Return batch or group; a table without this column is for one of them."""
    mode = row.number("mode")
    if mode is None:
        return "group" if module.endswith("_varlen") else "batch"
    return "group" if mode else "batch"
