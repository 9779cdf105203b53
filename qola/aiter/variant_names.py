"""The names by which AITER's Python imports variants of a module, read from its own functions.

A function of AITER's Python builds the name from the arguments of a call, in branches: this reads
the names of all branches, without running it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from qola.aiter.called_modules import DECORATOR, declaring_calls
from qola.aiter.tree import AiterTree

_NAME = "md_name"
_TYPED = re.compile(r"_(fp|bf)\d+")
MAX_NAMES = 4096
"""A function with more names is not read: its conditions are not independent branches."""


def variant_names(tree: AiterTree) -> dict[str, tuple[str, ...]]:
    """Return the sorted names of each module's variants, by module.

    A function whose names depend on more than its branches, such as on the name of a type, has
    none. Names without a type are those of tensors that no kernel serves.
    """
    found: dict[str, set[str]] = {}
    for file in tree.python_files("ops/*.py"):
        text = tree.text(file)
        if _NAME in text and DECORATOR in text:
            for module, names in _declared(tree.syntax_tree(file)):
                found.setdefault(module, set()).update(names)
    typed = {m: {n for n in names if _TYPED.search(n)} for m, names in found.items()}
    return {module: tuple(sorted(names)) for module, names in typed.items() if names}


def _declared(file: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield each module that a file declares functions of, with the names of its variants."""
    functions = {node.name: node for node in file.body if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        for call in declaring_calls(function):
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            generator = functions.get(keywords.get("gen_func", ""))
            if generator and isinstance(call.args[0], ast.Constant):
                yield str(call.args[0].value), _names(generator.body, {""}) - {""}


def _names(statements: Sequence[ast.stmt], before: set[str]) -> set[str]:
    """Return the names after some statements, from the names before them."""
    names = before
    for statement in statements:
        if isinstance(statement, ast.If):
            names = _names(statement.body, names) | _names(statement.orelse, names)
        elif isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if [ast.unparse(target) for target in targets] != [_NAME]:
                continue
            if not isinstance(statement.value, ast.Constant):
                return set()
            word = str(statement.value.value)
            new = isinstance(statement, ast.Assign)
            names = {word} if new else {f"{name}{word}" for name in names}
        if len(names) > MAX_NAMES:
            return set()
    return names
