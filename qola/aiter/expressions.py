"""Evaluates the Python expressions in AITER's optCompilerConfig.json without running Python.

AITER passes every string of that file to `eval`. The file uses a small part of the language
(f-strings over a dozen names, `os.environ.get`, queries of PyTorch). This module evaluates that
part, node by node, and refuses everything else.
"""

from __future__ import annotations

import ast
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Value = str | int | bool | list[str] | None

#: Stands for one architecture (gfx942) in values that depend on it.
ARCH_TOKEN = "@ARCH@"

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
}
"""Functions of comparisons, by their operator."""


class RefusedError(Exception):
    """An expression outside of the accepted language, and an acceptable form, if there is one."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Names:
    """The names that an expression may use.

    Attributes:
        values: by name: `AITER_CSRC_DIR`, `AITER_CONFIGS.AITER_CONFIG_FMOE_FILE`.
        calls: results of functions without arguments (`get_gfx`).
        archs: the architectures to build for: the value of GPU_ARCHS, and of `ARCH_TOKEN` in
            comparisons; () if they are unknown.
        torch: attributes that PyTorch has in all versions that qola builds for.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, str] = field(default_factory=dict)
    archs: Sequence[str] = ()
    torch: frozenset[str] = frozenset()


MAX_LENGTH = 2000
"""Maximal characters of an expression: ten times AITER's longest."""

MAX_DEPTH = 40
"""Maximal depth of an expression's syntax tree: four times AITER's deepest."""

_PARSING = threading.Lock()


def parse(text: str, mode: Literal["exec", "eval"] = "exec") -> Any:
    """Return the syntax tree of `text`; thread-safe.

    CPython up to 3.11 counts the depth of a tree per process: two threads that parse concurrently
    raise "SystemError: AST constructor recursion depth mismatch".

    Raises:
        SyntaxError, ValueError: `text` is not Python, or nested too deeply.
    """
    try:
        with _PARSING:
            return ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):  # of deep nesting
        raise SyntaxError("nested too deeply") from None


def source_of(node: ast.AST) -> str:
    """Return the source text of a node, "" if it is nested too deeply."""
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        return ""


def evaluate(text: str, names: Names) -> Value:
    """Return the value of the expression `text`.

    Accepted: constants, f-strings without format specification, the names of `names`,
    `os.environ.get(NAME[, DEFAULT])` and `os.getenv(...)` (always the default, since no environment
    variable influences a plan, except that GPU_ARCHS names the archs of the plan), `hasattr(torch,
    NAME)`, `int(x)`, `x.split(SEPARATOR)`, a constant index, one comparison, `and`, `or` and `a if
    c else b`.

    Raises:
        RefusedError: any other expression.
    """
    if len(text) > MAX_LENGTH:
        raise RefusedError(f"an expression of {len(text)} characters", f"{MAX_LENGTH} at most")
    try:
        tree = parse(text.strip() or "''", "eval")
    except (SyntaxError, ValueError) as error:
        raise RefusedError(f"not a Python expression: {error}") from None
    if _is_deeper(tree, MAX_DEPTH):
        raise RefusedError("an expression that is nested too deeply", f"{MAX_DEPTH} at most")
    return _Evaluator(names).value(tree.body)


def _is_deeper(tree: ast.AST, limit: int) -> bool:
    """Return whether a tree has more levels than `limit`, without recursion."""
    level = [tree]
    for _ in range(limit):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def _source(node: ast.AST) -> str:
    return f"`{source_of(node)}`"


def _torch_refused(node: ast.AST) -> RefusedError:
    return RefusedError(f"{_source(node)} queries PyTorch, and no PyTorch is given")


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for a chain of attributes of a name, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


class _Evaluator:
    def __init__(self, names: Names) -> None:
        self._names = names

    def value(self, node: ast.AST) -> Value:
        # Nothing else can be evaluated.
        match node:
            case ast.Constant(value=str() | int() | None as constant):
                return constant
            case ast.Constant(value=constant):
                kind = type(constant).__name__
                raise RefusedError(f"{_source(node)}: a {kind} constant is not accepted")
            case ast.JoinedStr(values=parts):
                return "".join(str(self.value(part)) for part in parts)
            case ast.FormattedValue(value=part, conversion=conversion, format_spec=form):
                if conversion not in (-1, ord("s")) or form is not None:
                    raise RefusedError(f"{_source(part)}: a conversion or format specification")
                return str(self.value(part))
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._bool_op(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                # As in Python, only the selected branch is evaluated.
                return self.value(body if self.value(test) else orelse)
        raise RefusedError(f"{_source(node)}: a {type(node).__name__} is not accepted")

    def _named(self, node: ast.Name | ast.Attribute) -> str:
        dotted = _dotted(node)
        if dotted in self._names.values:
            return self._names.values[dotted]
        if dotted == "torch.version.hip":
            raise _torch_refused(node)
        kind = "name" if isinstance(node, ast.Name) else "attribute"
        raise RefusedError(f"the {kind} {_source(node)}", f"known names: {self._known()}")

    def _known(self) -> str:
        return ", ".join(
            sorted([*self._names.values, *(f"{name}()" for name in self._names.calls)])
        )

    def _call(self, node: ast.Call) -> Value:
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            raise RefusedError(f"{_source(node)}: keyword or starred arguments")
        dotted = _dotted(node.func)
        if dotted in ("os.environ.get", "os.getenv"):
            return self._getenv(node)
        if dotted in self._names.calls and not node.args:
            return self._names.calls[dotted]
        if dotted == "hasattr" and len(node.args) == 2 and _dotted(node.args[0]) == "torch":
            if self.value(node.args[1]) in self._names.torch:
                return True
            raise _torch_refused(node)
        if dotted == "int" and len(node.args) == 1:
            return self._int(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            return self._split(node, node.func)
        raise RefusedError(f"the call {_source(node)}", f"known names: {self._known()}")

    def _getenv(self, node: ast.Call) -> Value:
        values = [self.value(arg) for arg in node.args]
        if len(values) not in (1, 2) or not isinstance(values[0], str):
            raise RefusedError(f"the call {_source(node)}")
        if values[0] == "GPU_ARCHS" and self._names.archs:
            return ";".join(self._names.archs)
        return values[1] if len(values) == 2 else None

    def _int(self, node: ast.Call) -> int:
        value = self.value(node.args[0])
        try:
            return int(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise RefusedError(f"{_source(node)}: {value!r} is not a whole number") from None

    def _split(self, node: ast.Call, func: ast.Attribute) -> list[str]:
        text = self.value(func.value)
        arguments = [self.value(arg) for arg in node.args]
        if not isinstance(text, str) or len(arguments) != 1 or not isinstance(arguments[0], str):
            raise RefusedError(
                f"the call {_source(node)}", "only TEXT.split(SEPARATOR) is accepted"
            )
        if not arguments[0]:
            raise RefusedError(f"{_source(node)}: an empty separator")
        return text.split(arguments[0])

    def _subscript(self, node: ast.Subscript) -> Value:
        index = self.value(node.slice)
        if _dotted(node.value) == "os.environ" and isinstance(index, str):
            raise RefusedError(f"{_source(node)}: the variable {index} has no value in a plan")
        items = self.value(node.value)
        if not isinstance(items, list) or not isinstance(index, int):
            raise RefusedError(f"the subscript {_source(node)}")
        try:
            return items[index]
        except IndexError:
            raise RefusedError(f"{_source(node)}: there are only {len(items)} parts") from None

    def _compare(self, node: ast.Compare) -> bool:
        if len(node.ops) != 1 or type(node.ops[0]) not in COMPARE:
            raise RefusedError(f"the comparison {_source(node)}")
        left, right = self.value(node.left), self.value(node.comparators[0])
        compare = COMPARE[type(node.ops[0])]
        is_order = not isinstance(node.ops[0], (ast.In, ast.NotIn))
        if is_order and isinstance(left, int) and isinstance(right, int):
            return compare(left, right)
        if not isinstance(left, str) or not isinstance(right, str):
            kinds = f"{type(left).__name__} with {type(right).__name__}"
            raise RefusedError(f"{_source(node)} compares {kinds}")
        if ARCH_TOKEN not in left + right:
            return compare(left, right)  # lexically, as in Python
        found = {
            compare(left.replace(ARCH_TOKEN, arch), right.replace(ARCH_TOKEN, arch))
            for arch in self._names.archs
        }
        if len(found) != 1:
            archs = ", ".join(self._names.archs) or "no arch"
            fix = "a manifest for each arch"
            raise RefusedError(f"{_source(node)} has no single answer for {archs}", fix)
        return found.pop()

    def _bool_op(self, node: ast.BoolOp) -> bool:
        decides = isinstance(node.op, ast.Or)
        refused: RefusedError | None = None
        for operand in node.values:
            try:
                value = self.value(operand)
            except RefusedError as error:
                # Another operand may decide.
                refused = refused or error
                continue
            if not isinstance(value, bool):
                raise RefusedError(f"{_source(operand)} is not a truth value")
            if value is decides:
                return decides
        if refused is not None:
            raise refused
        return not decides
