"""Tuning tables that AITER merges: the rows that AITER's own function and pandas give.

tests/golden/asm/merged_tables.json is from pandas 3.1 and the function of the pinned wheel. Where
pandas is installed, that function runs again: `QOLA_TEST_AITER_TREE=TREE pytest` compares another
tree's (CONTRIBUTING.md).
"""

from __future__ import annotations

import ast
import csv
import functools
import hashlib
import importlib.util
import io
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import read_tree
from qola.aiter.tuning_tables import MergedTable, tuning_tables
from qola.codegen.asm.merged_tables import merge_tables
from qola.errors import CodegenError

GOLDEN = Path(__file__).parents[1] / "golden/asm/merged_tables.json"

#: Measured values that differ between rows of one problem, kernel and time. pandas keeps any.
MEASURED = {"tflops", "bw", "errRatio"}


def content(text: str) -> dict[str, object]:
    """Return the number of rows, and digests of rows in any order and of times in this order."""
    rows = list(csv.DictReader(io.StringIO(text)))
    kept = sorted([value for key, value in row.items() if key not in MEASURED] for row in rows)
    times = [row["us"] for row in rows]
    digests = (hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16] for part in (kept, times))
    return {"rows": len(rows), **dict(zip(("values", "times"), digests, strict=True))}


def merge_by_aiter(root: Path, table: MergedTable, folder: Path) -> str:
    """Run AITER's own function `update_config_files`, with pandas; return the merged table."""
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
    own = [None] if function.args.args[0].arg == "self" else []
    return Path(names["update_config_files"](*own, files, stem)).read_text("utf-8")


def test_tables_of_the_wheel(aiter_tree: Path) -> None:
    """Prevents: a GEMM for none, or another, of the problems for which AITER picks it by name."""
    tables = read_tree(aiter_tree).merged_tables
    found = {
        path.rpartition("/")[2]: content(merge_tables(aiter_tree, table))
        for path, table in tables.items()
    }
    assert found == json.loads(GOLDEN.read_text("utf-8"))


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="needs pandas")
def test_tables_are_those_of_aiters_function(aiter_tree: Path, tmp_path: Path) -> None:
    """Prevents: a rule of core.py that is read as another one."""
    tables = read_tree(aiter_tree).merged_tables
    assert tables
    for path, table in tables.items():
        if path.endswith("/tuned_fmoe.csv"):
            # No generator reads it. AITER queries the machine's GPU for the arch of its rows.
            continue
        expected = content(merge_by_aiter(aiter_tree, table, tmp_path))
        assert content(merge_tables(aiter_tree, table)) == expected, path


#: Marks of the rules; AITER's functions have more in between.
RULES = {
    "wheel": "merge_df = merge_df.sort_values('us').drop_duplicates(subset=keys)",
    "d32b0cb": "keys.append('cu_num'); has_tag = '_tag'\n"
    "    merge_df = merge_df.sort_values('us').drop_duplicates(subset=keys)",
    "e4048607": "_FILL_DEFAULTS = {}; keys.append('cu_num'); keys.append('gfx'); has_tag = '_tag'\n"
    "    mask = merge_df.duplicated(subset=keys)",
}


def merged(
    root: Path, rule: str, tables: dict[str, str], untuned: str = "M,N\n"
) -> list[list[str]]:
    """Merge tables by the name of their file; the first is the default one."""
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
def test_the_fastest_row_of_a_problem_is_kept(tmp_path: Path, rule: str) -> None:
    """Prevents: a kernel of another GPU's row, or the order of tables taken for that of times."""
    tables = {
        DEFAULT: "cu_num,M,N,us,kernel\n80,1,2,9.5,slow\n80,3,4,5,other\n",
        MODEL: "cu_num,M,N,us,kernel\n80,1,2,2,fast\n304,1,2,1.0,large\n",
    }
    rows = [row[-2:] for row in merged(tmp_path, rule, tables)[1:]]
    assert (
        rows
        == {
            # Columns of the untuned table alone identify a problem.
            "wheel": [["1.0", "large"], ["5.0", "other"]],
            "d32b0cb": [["1.0", "large"], ["2.0", "fast"], ["5.0", "other"]],
            "e4048607": [["5.0", "other"], ["2.0", "fast"], ["1.0", "large"]],
        }[rule]
    )


def test_missing_columns_are_filled(tmp_path: Path) -> None:
    """Prevents: later tables of different columns that cannot be merged, or values that slip."""
    tables = {
        DEFAULT: "gfx,M,N,us,tflops\ngfx942,1,2,3,4\n",
        MODEL: "gfx,M,N,splitK,us,tflops,_tag\ngfx950,1,2,7,3,4,\n",
    }
    assert merged(tmp_path, "e4048607", tables) == [
        ["gfx", "M", "N", "us", "splitK", "_tag", "tflops"],
        ["gfx942", "1", "2", "3", "0", "", "4"],
        ["gfx950", "1", "2", "3", "7", "", "4"],
    ]


def test_equal_times_keep_the_first_row(tmp_path: Path) -> None:
    """Prevents: plans that differ between machines, as those of an unstable sort."""
    tables = {
        DEFAULT: "M,N,us,kernel\n1,2,3,default\n",
        MODEL: "M,N,us,kernel\n1,2,3,model\n",
    }
    assert merged(tmp_path, "wheel", tables)[1:] == [["1", "2", "3", "default"]]


@pytest.mark.parametrize(
    ("rule", "default", "model", "message"),
    [
        ("wheel", "M,N,us\n1,2,3\n", "M,us\n1,3\n", "columns M, us"),
        ("wheel", "M,N,us\n1,2,3\n", "M,N,us\n1,2,fast\n", "a text in place of a time"),
        ("e4048607", "gfx,M,us\ngfx942,1,3\n", "M,us\n1,3\n", "no column gfx"),
        ("merge_df = sample(merge_df)", "M,us\n1,3\n", "M,us\n1,3\n", "by a rule that qola does"),
        ("wheel", "M,us\n1,3\n", "", "no columns to parse from file"),
        ("wheel", "M,N\n1,3\n", "M,N\n1,3\n", "columns M, N(.|\n)*a column us"),
        ("wheel", "M,us\n1,3\n", f"M,us\n{'1' * 200_000},3\n", "field larger than field limit"),
    ],
)
def test_tables_that_aiter_cannot_merge(
    tmp_path: Path, rule: str, default: str, model: str, message: str
) -> None:
    """Prevents: a table that AITER refuses, or merges by an unknown rule, merged all the same."""
    with pytest.raises(CodegenError, match=message):
        merged(tmp_path, rule, {DEFAULT: default, MODEL: model})
