"""Reads aiter/jit/core.py: the directory of Composable Kernel, and macros.

The text is parsed and never run; a statement of another form than the ones below is ignored.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import cache

from qola.aiter.expressions import Names, RefusedError, evaluate, parse, source_of
from qola_base.errors import unseen

DEFAULT_CK_DIR = "3rdparty/composable_kernel"
_CK_NAMES = ("CK_DIR", "CK_3RDPARTY_DIR")
_MAX_PATH = 200  # characters of CK_DIR; AITER's has 26


def parse_core(core: str) -> ast.Module:
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
        for node in parse_core(core).body
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
    for owner in ast.walk(parse_core(core)):
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
