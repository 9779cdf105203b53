"""Reads aiter/jit/core.py: the directory of Composable Kernel, macros, and tuning tables.

The text is parsed and never run; a statement of another form than the ones below is ignored.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qola.aiter.expressions import Names, RefusedError, evaluate, parse, source_of
from qola.aiter.module_config import TREE_TOKEN
from qola_base.errors import unseen

DEFAULT_CK_DIR = "3rdparty/composable_kernel"
_CK_NAMES = ("CK_DIR", "CK_3RDPARTY_DIR")
_MAX_PATH = 200  # characters of CK_DIR; AITER's has 26

CONFIGS = "aiter/configs"
_MERGED = f"{TREE_TOKEN}/{CONFIGS}/merged"
"""Directory of merged tables in values; the tree does not have it."""


def _parse_core(core: str) -> ast.Module:
    """Return the syntax tree of core.py, an empty one if it is not Python."""
    try:
        tree: ast.Module = parse(core)
    except (SyntaxError, ValueError):
        return ast.Module([], [])
    return tree


def ck_directory(core: str) -> str:
    """Return Composable Kernel's directory, relative to AITER's meta directory.

    It is the default of the variable CK_DIR: an f-string that begins with the meta directory.
    """
    found = (
        str(part.values[1].value).strip("/")
        for node in _parse_core(core).body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id in _CK_NAMES for t in node.targets)
        for part in ast.walk(node.value)
        if isinstance(part, ast.JoinedStr)
        and len(part.values) == 2
        and isinstance(part.values[0], ast.FormattedValue)
        and isinstance(part.values[1], ast.Constant)
    )
    return next(filter(_is_inside, found), DEFAULT_CK_DIR)


def _is_inside(path: str) -> bool:
    if len(path) > _MAX_PATH or unseen(path):
        return False
    return posixpath.normpath(path) == path and not path.startswith(("..", "/"))


@cache
def core_defines(core: str) -> tuple[tuple[str, str], ...]:
    """Return name and value of each macro that core.py defines for modules, in the file's order.

    A module that defines the macro itself keeps its own value. Later trees write:

        enable_ck = int(os.environ.get("ENABLE_CK", "1"))
        if not any("ENABLE_CK" in f for f in flags_extra_cc):
            flags_cc.append(f"-DENABLE_CK={enable_ck}")

    The result has the default: no environment variable influences a plan.
    """
    found: dict[str, str] = {}
    for owner in ast.walk(_parse_core(core)):
        if isinstance(owner, ast.FunctionDef):
            found.update(_defines_of_function(owner))
    return tuple(found.items())


def _defines_of_function(owner: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    values: dict[str, ast.expr] = {}
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, node.value)
    for node in ast.walk(owner):
        if not isinstance(node, ast.If):
            continue
        for statement in node.body:
            name, variable = _definition(statement)
            if name and variable in values and _is_guard(node.test, name):
                value = _default(values[variable], name)
                if value:
                    yield name, value


def _definition(statement: ast.stmt) -> tuple[str, str]:
    """Return (NAME, variable) of ``flags.append(f"-DNAME={variable}")``, else empty strings."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "append"):
        return "", ""
    parts = call.args[0].values if call.args and isinstance(call.args[0], ast.JoinedStr) else []
    if len(parts) != 2:
        return "", ""
    text, value = parts
    match = re.fullmatch(r"-D(\w+)=", str(getattr(text, "value", "")))
    variable = getattr(getattr(value, "value", None), "id", "")
    return (match[1], variable) if match else ("", "")


def _is_guard(test: ast.expr, name: str) -> bool:
    """Return whether a condition checks that the module's own flags lack the macro."""
    form = rf"not any\(\(?'{name}' in (\w+) for \1 in \w+\)?\)"
    return re.fullmatch(form, source_of(test)) is not None


def _default(expression: ast.expr, name: str) -> str:
    """Return the value of ``int(os.environ.get(NAME, DEFAULT))`` if no variable is set."""
    text = source_of(expression)
    if f"'{name}'" not in text:
        return ""
    try:
        return str(evaluate(text, Names()))
    except RefusedError:
        return ""


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
    """Return the tuning tables that core.py names.

    It defines `NAME = get_config_file(VARIABLE, DEFAULT, STEM)` (wheel) or a property NAME of a
    class that returns such a call (later). If model_configs/ has tables of STEM, AITER merges them
    with the default table when it needs the table first (`update_config_files`), unless the
    environment names another one. So the merged table is a function of the tree;
    `qola.codegen.asm.merged_tables` computes it.
    """
    directory = root / CONFIGS / "model_configs"
    names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    models = [name for name in names if name.endswith(".csv") and "untuned" not in name]
    tree = _parse_core(core)
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
