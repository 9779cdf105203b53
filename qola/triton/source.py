"""Reads the parameters of a kernel from its Python file, without importing Triton."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from qola.errors import Finding, ManifestError


@dataclass(frozen=True)
class Parameters:
    """Parameters of a kernel.

    Attributes:
        types: type of each argument of a launch by name, in order; "" without an annotation.
        constants: names of `tl.constexpr` parameters.
        needed: names of `tl.constexpr` parameters without a default.
    """

    types: dict[str, str]
    constants: frozenset[str]
    needed: frozenset[str]


def functions(text: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a Python file, by name.

    Raises:
        SyntaxError: the text is not Python.
    """
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def read_parameters(text: str, function: str, place: str) -> Parameters:
    """Return the parameters of a function.

    Raises:
        ManifestError: the file is not Python, or the function is missing.
    """
    try:
        found = functions(text)
    except SyntaxError as error:
        raise ManifestError(
            Finding(f"{place}:{error.lineno}", str(error.msg), "a file in Python")
        ) from None
    if function not in found:
        expected = "one of its functions: " + (", ".join(sorted(found)) or "it has none")
        raise ManifestError(Finding(place, f"no function {function}", expected))
    arguments = found[function].args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    # args.defaults belong to the last parameters; kw_defaults has an entry, or None, for each.
    plain = len(every) - len(arguments.kwonlyargs) - len(arguments.defaults)
    defaults = [None] * plain + [*arguments.defaults, *arguments.kw_defaults]
    constants = [one for one in every if _is_constant(one.annotation)]
    with_default = {one.arg for one, value in zip(every, defaults, strict=True) if value}
    return Parameters(
        types={one.arg: _type(one.annotation) for one in every if one not in constants},
        constants=frozenset(one.arg for one in constants),
        needed=frozenset(one.arg for one in constants if one.arg not in with_default),
    )


def _is_constant(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant):
        return str(annotation.value).endswith("constexpr")
    return annotation is not None and ast.unparse(annotation).endswith("constexpr")


def _type(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ""
