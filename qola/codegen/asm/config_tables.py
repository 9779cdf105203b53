"""Reads the CSV tables of AITER's later trees: which .co file serves which problems.

``hsa/<arch>/<module>/**/*.csv`` has a row for each kernel; `hsa/codegen.py -m <module>` makes a C++
table of all of them, and AITER's C++ selects and loads by that. qola
only interprets the columns by which variants select: dtype, hdim_q, hdim_v, mask and mode.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from qola.aiter.tree import AiterTree
from qola.codegen.asm.domain import Variant, serves_any
from qola.errors import CodegenError, Finding

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
        place: file and line.
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
        raise CodegenError(
            Finding(
                place=self.place,
                found=f"{column} = {text}",
                expected="a whole number, or nothing, which is 0",
                fix="use an AITER tree whose tables have numbers in this column",
            )
        )


@dataclass(frozen=True)
class ConfigTable:
    """One CSV file.

    Attributes:
        module: its name for `hsa/codegen.py -m`, and its folder below ``hsa/<arch>``.
        file: path relative to the tree.
        columns: its header.
        rows: in its order.
    """

    module: str
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


def read_tables(tree: AiterTree, module: str) -> tuple[ConfigTable, ...]:
    """Read the tables of one module for all archs, sorted by file.

    Raises:
        CodegenError: there is no table, or a file is not such a table.
    """
    found = sorted((tree.root / tree.hsa_dir).glob(f"*/{module}/**/*.csv"))
    if not found:
        raise CodegenError(
            Finding(
                place=f"{tree.hsa_dir}/codegen.py -m {module}",
                found=f"no table {tree.hsa_dir}/<arch>/{module}/**/*.csv",
                expected="a table for at least one arch",
                fix="use an AITER tree that has the folder, or leave the source that includes "
                f"asm_{module}_configs.hpp out (drop_srcs)",
            )
        )
    files = (path.relative_to(tree.root).as_posix() for path in found)
    return tuple(_read_table(tree, module, file) for file in files)


def _read_table(tree: AiterTree, module: str, file: str) -> ConfigTable:
    arch = file.removeprefix(f"{tree.hsa_dir}/").partition("/")[0]
    numbers, (columns, *rest) = _read_csv(tree, file)
    widths = {len(line) for line in rest}
    if not {"knl_name", "co_name"} <= set(columns) or widths - {len(columns)}:
        raise CodegenError(
            Finding(
                place=file,
                found=f"columns {', '.join(columns) or 'none'}, rows of {sorted(widths)} fields",
                expected="a CSV table with the columns knl_name and co_name, and as many fields "
                "in each row",
                fix="use an AITER tree whose tables hsa/codegen.py reads",
            )
        )
    rows = []
    for number, line in zip(numbers, rest, strict=True):
        fields = dict(zip(columns, line, strict=True))
        files = co_files(tree, posixpath.dirname(file), fields["co_name"].strip())
        rows.append(ConfigRow(arch, PurePosixPath(file).stem, fields, files, f"{file}:{number}"))
    return ConfigTable(module, arch, file, tuple(columns), tuple(rows))


def _read_csv(tree: AiterTree, file: str) -> tuple[list[int], list[list[str]]]:
    """Read a CSV file: the line numbers of its rows, and the header followed by the rows.

    Raises:
        CodegenError: it is not CSV in UTF-8.
    """
    try:
        kept = _without_comments((tree.root / file).read_text(encoding="utf-8-sig"))
        reader = csv.reader(io.StringIO("\n".join(line for _, line in kept)))
        found = [(kept[reader.line_num - 1][0], line) for line in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise CodegenError(
            Finding(
                place=file,
                found=f"{type(error).__name__}: {error}",
                expected="a CSV table in UTF-8",
                fix="use an AITER tree whose tables hsa/codegen.py reads",
            )
        ) from None
    return [number for number, _ in found[1:]], [line for _, line in found] or [[]]


def co_files(tree: AiterTree, folder: str, name: str) -> tuple[str, ...]:
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


def _without_comments(text: str) -> list[tuple[int, str]]:
    """Return the lines of CSV text without comments and blank lines, with their numbers."""
    lines = []
    number = 0
    # A block comment leaves a mark for every line break in it.
    for marked in _BLOCK_COMMENT.sub(lambda m: "\0" * m[0].count("\n"), text).splitlines():
        number += 1 + marked.count("\0")
        line = marked.replace("\0", "")
        if line.strip() and not line.lstrip().startswith(("//", "#", ";")):
            comment = _LINE_COMMENT.search(line) if '"' not in line else None
            lines.append((number, line[: comment.start()] if comment else line))
    return lines
