"""Finds AITER's tuning tables, and the rule by which AITER merges several into one.

core.py defines `NAME = get_config_file(VARIABLE, DEFAULT, STEM)` (wheel) or a property NAME of a
class that returns such a call (later). If model_configs/ has tables of STEM, AITER merges them with
the default table when it needs the table first (`update_config_files`), unless the environment
names another one. So the merged table is a function of the tree; `qola.codegen.asm.merged_tables`
computes it. The text of core.py is parsed and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qola.aiter.core_file import parse_core
from qola.aiter.expressions import source_of
from qola.aiter.module_config import TREE_TOKEN

CONFIGS = "aiter/configs"
_MERGED = f"{TREE_TOKEN}/{CONFIGS}/merged"
"""Directory of merged tables in values; the tree does not have it."""


@dataclass(frozen=True)
class MergeRule:
    """How core.py merges tables.

    Attributes:
        more_keys: columns that identify a problem, in addition to those of the untuned table.
        is_sorted: AITER sorts the rows by time, and keeps the first of each problem. If not, it
            refuses tables with two rows of a problem.
        is_filled: a table may lack columns.
    """

    more_keys: tuple[str, ...]
    is_sorted: bool
    is_filled: bool


@dataclass(frozen=True)
class MergedTable:
    """A tuning table that AITER merges from several.

    Attributes:
        path: its path in evaluated values, below `TREE_TOKEN`.
        files: tree-relative tables, in the order of the merge: the default one first.
        untuned: tree-relative table of the problems to tune, "" if there is none. Its columns
            identify a problem.
        rule: None if core.py has no rule that qola knows.
    """

    path: str
    files: tuple[str, ...]
    untuned: str
    rule: MergeRule | None


@dataclass(frozen=True)
class TuningTables:
    """The tuning tables of a tree.

    Attributes:
        paths: path of each table in evaluated values, by the name in core.py.
        merged: those that AITER merges, by path.
    """

    paths: dict[str, str]
    merged: dict[str, MergedTable]


def tuning_tables(root: Path, core: str) -> TuningTables:
    """Return the tuning tables that core.py names."""
    directory = root / CONFIGS / "model_configs"
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    models = [name for name in names if name.endswith(".csv") and "untuned" not in name]
    tree = parse_core(core)
    rule = _merge_rule(tree)
    paths: dict[str, str] = {}
    merged: dict[str, MergedTable] = {}
    for name, stem in _named_tables(tree):
        own = f"{CONFIGS}/{stem}.csv"
        more = [f"{CONFIGS}/model_configs/{model}" for model in models if stem in model]
        paths[name] = f"{_MERGED}/{stem}.csv" if more else f"{TREE_TOKEN}/{own}"
        if more:
            untuned = f"{CONFIGS}/{'untuned'.join(stem.rsplit('tuned', 1))}.csv"
            untuned = untuned if (root / untuned).is_file() else ""
            files = tuple(file for file in (own, *more) if (root / file).is_file())
            merged[paths[name]] = MergedTable(paths[name], files, untuned, rule)
    return TuningTables(paths, merged)


def _named_tables(core: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the stem of each table: the third argument of get_config_file."""
    for owner in ast.walk(core):
        if isinstance(owner, ast.Assign) and isinstance(owner.targets[0], ast.Name):
            name = owner.targets[0].id
        elif isinstance(owner, ast.FunctionDef):
            name = f"AITER_CONFIGS.{owner.name}"
        else:
            continue
        for call in ast.walk(owner):
            if isinstance(call, ast.Call) and len(call.args) == 3:
                function = getattr(call.func, "id", getattr(call.func, "attr", ""))
                stem = call.args[2]
                if function == "get_config_file" and isinstance(stem, ast.Constant):
                    yield name, str(stem.value)


def _merge_rule(core: ast.Module) -> MergeRule | None:
    """Return the rule of core.py's function `update_config_files`."""
    functions = (node for node in ast.walk(core) if isinstance(node, ast.FunctionDef))
    function = next((node for node in functions if node.name == "update_config_files"), None)
    if function is None:
        return None
    nodes = [
        source_of(node) for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.Call))
    ]
    is_sorted = any(
        node.startswith("merge_df = ") and ".sort_values('us')" in node for node in nodes
    )
    if not is_sorted and not any(".duplicated(" in node for node in nodes):
        return None
    text = source_of(function)
    keys = tuple(key for key in ("cu_num", "gfx", "_tag") if f"'{key}'" in text)
    return MergeRule(keys, is_sorted, "_FILL_DEFAULTS" in text)
