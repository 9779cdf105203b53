"""Flags that AITER's own build gives every module, beside those of its configuration.

Later trees write in aiter/jit/core.py, in the function that builds a module:

    enable_ck = int(os.environ.get("ENABLE_CK", "1"))
    if not any("ENABLE_CK" in f for f in flags_extra_cc):
        flags_cc.append(f"-DENABLE_CK={enable_ck}")

That form alone is read, and the default in it is taken: no environment decides what qola builds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from qola.aiter.expressions import Names, RefusedError, evaluate, parse, source_of


@cache
def core_defines(core: str) -> tuple[tuple[str, str], ...]:
    """Return the macros that core.py defines for a module which does not define them itself.

    Args:
        core: text of aiter/jit/core.py; without the form above, there are none.

    Returns:
        Name and value of each, in the file's order.
    """
    try:
        tree = parse(core)
    except (SyntaxError, ValueError):
        return ()
    found: dict[str, str] = {}
    for owner in ast.walk(tree):
        if isinstance(owner, ast.FunctionDef):
            found.update(_of_function(owner))
    return tuple(found.items())


def _of_function(owner: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    values: dict[str, ast.expr] = {}
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, node.value)
    for node in ast.walk(owner):
        if not isinstance(node, ast.If):
            continue
        for statement in node.body:
            name, variable = _definition(statement)
            if name and variable in values and _guards(node.test, name):
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


def _guards(test: ast.expr, name: str) -> bool:
    """Whether a condition is that the module's own flags do not have the macro."""
    form = rf"not any\(\(?'{name}' in (\w+) for \1 in \w+\)?\)"
    return re.fullmatch(form, source_of(test)) is not None


def _default(expression: ast.expr, name: str) -> str:
    """Return the value of ``int(os.environ.get(NAME, DEFAULT))`` where no variable is set."""
    text = source_of(expression)
    if f"'{name}'" not in text:
        return ""
    try:
        return str(evaluate(text, Names()))
    except RefusedError:
        return ""
