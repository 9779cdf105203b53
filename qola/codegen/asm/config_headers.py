"""Runs `hsa/codegen.py`, as it is, on copies of its tables with the rows that are wanted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from qola.aiter.tree import AiterTree
from qola.codegen.asm.config_tables import ConfigRow, ConfigTable
from qola.codegen.asm.script import run_script
from qola.errors import CodegenError, Finding
from qola.files import write_if_changed

SCRIPT = "codegen.py"
"""Name of the script, below the tree's directory of code objects."""

#: Stands before an arch's name where its tables are whole. It sorts before every arch.
_WHOLE = "0_"


def header_name(module: str) -> str:
    """Return the name of the header that the script makes of a module's tables."""
    return f"asm_{module}_configs.hpp"


def config_header(
    tree: AiterTree, module: str, tables: Sequence[ConfigTable], kept: Collection[ConfigRow]
) -> bytes:
    """Return the C++ table of some rows.

    The script reads types and columns from whatever rows it finds, and fails on a table without
    any. So it is shown every table whole as well, for architectures that nobody asks for: the C++
    is that of AITER's own build, less the lines of rows that are not wanted.

    Args:
        tables: all tables of the module; those of every arch, or C++ may miss one it names.
        kept: the rows to keep.

    Raises:
        CodegenError: the script fails or writes another file.
    """
    script = f"{tree.hsa_dir}/{SCRIPT}"
    place = f"{script} -m {module}"
    chosen = {id(row) for row in kept}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        shutil.copyfile(tree.root / script, root / SCRIPT)
        for table in tables:
            below = table.file.removeprefix(f"{tree.hsa_dir}/{table.arch}/")
            rows = [row for row in table.rows if id(row) in chosen]
            for arch, text in (
                (f"{_WHOLE}{table.arch}", table.text(table.rows)),
                (table.arch, table.text(rows)),
            ):
                copy = root / arch / below
                write_if_changed(copy, text)
        archs = sorted({row.arch for row in kept})
        files = run_script(root / SCRIPT, ["-m", module, "--output_dir", "{}"], place, archs)
    if list(files) != [header_name(module)]:
        raise CodegenError(
            Finding(
                place=place,
                found=", ".join(files),
                expected=f"{header_name(module)} and no other file",
                fix="use an AITER tree that this qola serves",
            )
        )
    return files[header_name(module)]
