"""Tuning tables that AITER merges: rows must equal the output of AITER's function.

tests/golden/asm/merged_tables.json is the output of the pinned wheel's function.
`QOLA_TEST_AITER_TREE=TREE pytest` compares another tree.
"""

from __future__ import annotations

import ast
import csv
import functools
import hashlib
import io
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.core_file import MergedTable, tuning_tables
from qola.aiter.tree import read_tree
from qola.codegen.asm.merged_tables import merge_tables
from qola_base.errors import CodegenError

GOLDEN = Path(__file__).parents[1] / "golden/asm/merged_tables.json"

#: Measured columns. They differ between rows of equal problem, kernel and time; pandas keeps any.
MEASURED = {"tflops", "bw", "errRatio"}


def table_digests(text: str) -> dict[str, object]:
    """Return the number of rows, a digest of the sorted values, and a digest of the times."""
    rows = list(csv.DictReader(io.StringIO(text)))
    values = sorted([value for key, value in row.items() if key not in MEASURED] for row in rows)
    times = [row["us"] for row in rows]
    digests = (
        hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16] for part in (values, times)
    )
    return {"rows": len(rows), **dict(zip(("values", "times"), digests, strict=True))}


def merge_by_aiter(root: Path, table: MergedTable, folder: Path) -> str:
    """Run AITER's function `update_config_files` with pandas, and return the merged table."""
    core = ast.parse((root / "aiter/jit/core.py").read_text("utf-8"))
    (function,) = (
        node
        for node in ast.walk(core)
        if isinstance(node, ast.FunctionDef) and node.name == "update_config_files"
    )
    names: dict[str, Any] = {
        "AITER_ROOT_DIR": str(root),
        "functools": functools,
        "logger": logging.getLogger("aiter"),
        "mp_lock": lambda _path, write: write(),
        "os": os,
        "re": re,
    }
    exec(ast.unparse(function).replace("/tmp", str(folder)), names)
    files = os.pathsep.join(str(root / file) for file in table.files)
    stem = table.path.rpartition("/")[2].removesuffix(".csv")
    self_argument = [None] if function.args.args[0].arg == "self" else []
    return Path(names["update_config_files"](*self_argument, files, stem)).read_text("utf-8")


def test_tables_of_the_wheel(aiter_tree: Path) -> None:
    """Prevents: a GEMM module without kernels, or with wrong kernels, for a tuned problem."""
    tables = read_tree(aiter_tree).merged_tables
    digests = {
        path.rpartition("/")[2]: table_digests(merge_tables(aiter_tree, table))
        for path, table in tables.items()
    }
    assert digests == json.loads(GOLDEN.read_text("utf-8"))


def test_tables_equal_aiters_function(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a merge rule of core.py that qola implements wrongly."""
    tables = read_tree(aiter_tree).merged_tables
    assert tables
    for path, table in tables.items():
        if path.endswith("/tuned_fmoe.csv"):
            # No generator reads this table. AITER takes its arch from the GPU of the machine.
            continue
        expected = table_digests(merge_by_aiter(aiter_tree, table, tmp_path))
        assert table_digests(merge_tables(aiter_tree, table)) == expected, path


#: Lines by which qola recognizes a merge rule; AITER's functions contain more code.
RULES = {
    "wheel": "merge_df = merge_df.sort_values('us').drop_duplicates(subset=keys)",
    "d32b0cb": "keys.append('cu_num'); has_tag = '_tag'\n"
    "    merge_df = merge_df.sort_values('us').drop_duplicates(subset=keys)",
    "e4048607": "_FILL_DEFAULTS = {}; keys.append('cu_num'); keys.append('gfx'); has_tag = '_tag'\n"
    "    mask = merge_df.duplicated(subset=keys)",
}


def merge(root: Path, rule: str, tables: dict[str, str], untuned: str = "M,N\n") -> list[list[str]]:
    """Merge tables, by file name. The first table is the default."""
    configs = root / "aiter/configs"
    (configs / "model_configs").mkdir(parents=True)
    (configs / "x_untuned_gemm.csv").write_text(untuned)
    for name, text in tables.items():
        (configs / name).write_text(text)
    core = (
        f"def update_config_files(file_path, merge_name):\n    {RULES.get(rule, rule)}\n"
        "FILE = get_config_file('FILE', 'd', 'x_tuned_gemm')\n"
    )
    (table,) = tuning_tables(root, core).merged.values()
    return list(csv.reader(io.StringIO(merge_tables(root, table))))


DEFAULT, MODEL = "x_tuned_gemm.csv", "model_configs/x_tuned_gemm_a.csv"


@pytest.mark.parametrize("rule", RULES)
def test_fastest_row_of_a_problem_is_selected(tmp_path: Path, rule: str) -> None:
    """Prevents: a kernel tuned for another GPU, or rows selected by table order instead of time."""
    tables = {
        DEFAULT: "cu_num,M,N,us,kernel\n80,1,2,9.5,slow\n80,3,4,5,other\n",
        MODEL: "cu_num,M,N,us,kernel\n80,1,2,2,fast\n304,1,2,1.0,large\n",
    }
    rows = [row[-2:] for row in merge(tmp_path, rule, tables)[1:]]
    assert (
        rows
        == {
            # Only columns of the untuned table identify a problem.
            "wheel": [["1.0", "large"], ["5.0", "other"]],
            "d32b0cb": [["1.0", "large"], ["2.0", "fast"], ["5.0", "other"]],
            "e4048607": [["5.0", "other"], ["2.0", "fast"], ["1.0", "large"]],
        }[rule]
    )


def test_missing_columns_are_filled(tmp_path: Path) -> None:
    """Prevents: tables with different columns that cannot be merged, or values in wrong columns."""
    tables = {
        DEFAULT: "gfx,M,N,us,tflops\ngfx942,1,2,3,4\n",
        MODEL: "gfx,M,N,splitK,us,tflops,_tag\ngfx950,1,2,7,3,4,\n",
    }
    assert merge(tmp_path, "e4048607", tables) == [
        ["gfx", "M", "N", "us", "splitK", "_tag", "tflops"],
        ["gfx942", "1", "2", "3", "0", "", "4"],
        ["gfx950", "1", "2", "3", "7", "", "4"],
    ]


def test_equal_times_select_the_first_row(tmp_path: Path) -> None:
    """Prevents: plans that differ between machines because the sort is not stable."""
    tables = {
        DEFAULT: "M,N,us,kernel\n1,2,3,default\n",
        MODEL: "M,N,us,kernel\n1,2,3,model\n",
    }
    assert merge(tmp_path, "wheel", tables)[1:] == [["1", "2", "3", "default"]]


@pytest.mark.parametrize(
    ("rule", "default", "model", "message"),
    [
        ("wheel", "M,N,us\n1,2,3\n", "M,us\n1,3\n", "columns M, us"),
        ("wheel", "M,N,us\n1,2,3\n", "M,N,us\n1,2,fast\n", "a text in place of a time"),
        ("e4048607", "gfx,M,us\ngfx942,1,3\n", "M,us\n1,3\n", "no column gfx"),
        ("merge_df = sample(merge_df)", "M,us\n1,3\n", "M,us\n1,3\n", "by a rule that qola does"),
        ("wheel", "M,us\n1,3\n", "", "No columns to parse from file"),
        ("wheel", "M,N\n1,3\n", "M,N\n1,3\n", "columns M, N(.|\n)*a column us"),
        ("wheel", "M,us\n1,3\n", "M,us\n1,3\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
    ],
)
def test_tables_that_aiter_cannot_merge(
    tmp_path: Path, rule: str, default: str, model: str, message: str
) -> None:
    """Prevents: a merged table although AITER refuses it, or merges it by an unknown rule."""
    with pytest.raises(CodegenError, match=message):
        merge(tmp_path, rule, {DEFAULT: default, MODEL: model})
