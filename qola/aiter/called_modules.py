"""The modules behind functions of AITER's Python, and the names of their variants.

Both are read from AITER's own code, which is never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from qola.aiter.tree import AiterTree

DECORATOR = "compile_ops"
"""In AITER's Python, declares a function of a module."""

_TRITON = "triton"
"""Directory of kernels in Triton, which are not compiled into modules."""

_NAME = "md_name"
_TYPED = re.compile(r"_(fp|bf)\d+")
_MAX_NAMES = 4096
"""A function with more names is not read: its conditions are not independent branches."""


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
    for call in _declaring_calls(node):
        name = call.args[0]
        if isinstance(name, ast.Constant):
            return str(name.value)
        return constants.get(ast.unparse(name), "")
    return ""


def _declaring_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of AITER's decorator on a function; the first argument is the module."""
    for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
        if isinstance(call, ast.Call) and ast.unparse(call.func) == DECORATOR and call.args:
            yield call


def variant_names(tree: AiterTree) -> dict[str, tuple[str, ...]]:
    """Return the sorted names by which AITER's Python imports variants of each module.

    A function of AITER's Python builds the name from the arguments of a call, in branches: the
    result has the names of all branches. A function whose names depend on more than its branches,
    such as on the name of a type, has none. Names without a type are those of tensors that no
    kernel serves.
    """
    found: dict[str, set[str]] = {}
    for file in tree.python_files("ops/*.py"):
        text = tree.text(file)
        if _NAME in text and DECORATOR in text:
            for module, names in _declared_variants(tree.syntax_tree(file)):
                found.setdefault(module, set()).update(names)
    typed = {m: {n for n in names if _TYPED.search(n)} for m, names in found.items()}
    return {module: tuple(sorted(names)) for module, names in typed.items() if names}


def _declared_variants(file: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield each module that a file declares functions of, with the names of its variants."""
    functions = {node.name: node for node in file.body if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        for call in _declaring_calls(function):
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            generator = functions.get(keywords.get("gen_func", ""))
            if generator and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value), _names_after(generator.body, {""}) - {""}


def _names_after(statements: Sequence[ast.stmt], before: set[str]) -> set[str]:
    """Return the names after some statements, from the names before them."""
    names = before
    for statement in statements:
        if isinstance(statement, ast.If):
            names = _names_after(statement.body, names) | _names_after(statement.orelse, names)
        elif isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if [ast.unparse(target) for target in targets] != [_NAME]:
                continue
            if not isinstance(statement.value, ast.Constant):
                return set()
            word = str(statement.value.value)
            new = isinstance(statement, ast.Assign)
            names = {word} if new else {f"{name}{word}" for name in names}
        if len(names) > _MAX_NAMES:
            return set()
    return names
