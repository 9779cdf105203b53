"""The functions of AITER's second JIT, csrc/cpp_itfs, and the parameters of their `compile`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from qola.aiter.tree import AiterTree

COMPILE = "compile"
"""Function of each file that finds or compiles the library of its arguments."""

JIT = "cpp_itfs/utils.py"
"""File below csrc/ with the JIT itself."""

_NAME = "MD_NAME"
"""Constant of each file: the first part of the names of its libraries."""

_NAMING = ("func_name", "folder")
"""Parameters that replace a library's name; AITER's own calls leave them out."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function's `compile`.

    Attributes:
        type: its annotation: int, str or bool; "" for none or another one.
    """

    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class TemplateFunction:
    """A function of csrc/cpp_itfs.

    Attributes:
        name: name of its file without .py.
        file: the file, relative to the tree.
    """

    name: str
    file: str
    parameters: tuple[Parameter, ...]


def template_functions(tree: AiterTree) -> dict[str, TemplateFunction]:
    """Return the functions of a tree by name, sorted."""
    folder = f"{tree.csrc_dir}/{PurePosixPath(JIT).parent}"
    files = sorted((tree.root / folder).glob("*/*.py"))
    found = (_read(tree, file.relative_to(tree.root).as_posix()) for file in files)
    functions = {function.name: function for function in found if function}
    return {name: functions[name] for name in sorted(functions)}


def _read(tree: AiterTree, file: str) -> TemplateFunction | None:
    """Return the function that a file defines; None for a file without one."""
    if COMPILE not in (text := tree.text(file)) or _NAME not in text:
        return None
    body = tree.syntax_tree(file).body
    named = any(
        isinstance(target, ast.Name) and target.id == _NAME
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
    for node in body:
        if named and isinstance(node, ast.FunctionDef) and node.name == COMPILE:
            own = (p for p in _parameters(node.args) if p.name not in _NAMING)
            return TemplateFunction(PurePosixPath(file).stem, file, tuple(own))
    return None


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    places = [*arguments.posonlyargs, *arguments.args]
    required = len(places) - len(arguments.defaults)
    for number, argument in enumerate(places):
        yield _parameter(argument, required=number < required)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, required=default is None)


def _parameter(argument: ast.arg, *, required: bool) -> Parameter:
    annotation = argument.annotation.id if isinstance(argument.annotation, ast.Name) else ""
    known = annotation in ("bool", "int", "str")
    return Parameter(argument.arg, annotation if known else "", required)
