"""The modules behind functions of AITER's Python, found by the names that its code mentions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from qola.aiter.tree import AiterTree

DECORATOR = "compile_ops"
"""In AITER's Python, declares a function of a module."""

_TRITON = "triton"
"""Directory of kernels in Triton, which are not compiled into modules."""


def called_modules(tree: AiterTree, functions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the modules that functions call, each with the functions that lead to it, sorted.

    A name stands for each function, class or value of AITER's with this name, so a module too many
    is possible. Functions that the tree does not have lead to none.
    """
    mentions, modules = _read(tree)
    found: dict[str, set[str]] = {}
    for function in functions:
        seen = {function} & mentions.keys()
        new = [*seen]
        while new:
            name = new.pop()
            for module in modules.get(name, ()):
                found.setdefault(module, set()).add(function)
            further = (mentions[name] & mentions.keys()) - seen
            seen |= further
            new += further
    return {module: tuple(sorted(callers)) for module, callers in sorted(found.items())}


def _read(tree: AiterTree) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the names that each definition mentions, and the modules that it declares."""
    mentions: dict[str, set[str]] = {}
    modules: dict[str, set[str]] = {}
    for file in tree.python_files():
        # core.py defines the decorator, whose body mentions its own helpers only.
        _, *parts = PurePosixPath(file).parts
        if _TRITON in parts or parts[0] == "jit":
            continue
        constants: dict[str, str] = {}
        for node in tree.syntax_tree(file).body:
            for name in _defined(node):
                mentions.setdefault(name, set()).update(_mentioned(node))
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    constants[name] = str(node.value.value)
                if module := _declared(node, constants):
                    modules.setdefault(name, set()).add(module)
    return mentions, modules


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _mentioned(node: ast.stmt) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "aiter"
    }


def _declared(node: ast.stmt, constants: dict[str, str]) -> str:
    """Return the module of a function that is declared with AITER's decorator, else ""."""
    for call in declaring_calls(node):
        name = call.args[0]
        if isinstance(name, ast.Constant):
            return str(name.value)
        return constants.get(ast.unparse(name), "")
    return ""


def declaring_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of AITER's decorator on a function; the first argument is the module."""
    for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        if isinstance(call, ast.Call) and ast.unparse(call.func) == DECORATOR and call.args:
            yield call
