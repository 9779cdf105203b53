"""Which kernel instance a problem goes to, read from the C++ of a dispatch.

A dispatch is conditions within each other: arch, data type, head dimensions, then one row after
the other, of which the first that fits names the traits types of the kernels it launches. They
are evaluated here as they stand; what cannot be is an error, never a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from types import CodeType
from typing import Any

from qola.codegen.ck.link import Links, NotUnderstoodError, arch_of, traits_of, without_comments
from qola.verify.problem import Problem

_START = re.compile(r"\bif\s*\(\s*(?:device_name|t\.data_type|t\.hdim_q)\b")
_TOKEN = re.compile(r"(?P<other>\belse\s+)?\bif\s*(?:constexpr\s*)?\(|\belse\s*\{|[{}]")
_SAME = re.compile(r"std::is_same_v<\s*(\w+)\s*,\s*(\w+)\s*>")
_COMPARED = re.compile(r'([\w.]+)\.compare\(\s*(?:0\s*,\s*(\d+)\s*,\s*)?"([^"]*)"\s*\)\s*==\s*0')
_MULTIPLE = re.compile(r"(a\.\w+) % ([1-9]\d*) == 0")
_WORDS = {"true": "True", "false": "False", "nullptr": "None", "&&": " and ", "||": " or "}
_WORD = re.compile(r"\b(?:true|false|nullptr)\b|&&|\|\||!(?!=)")
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.BinOp, ast.Mod, ast.Add, ast.Sub),
    *(ast.Mult, ast.Name, ast.Attribute, ast.Constant, ast.Load, ast.Call),
)


#: Kernel instances that a row launches.
_Row = tuple[str, ...]
#: Of conditions that rows in front leave open.
_MOST_PARTS = 8


@dataclass
class _Block:
    """What stands in braces: its own text, and chains of if and else with blocks of theirs."""

    text: str = ""
    chains: list[list[tuple[str, _Block]]] = field(default_factory=list)


def _closing(text: str, start: int) -> int:
    """Return where the parenthesis closes that opens before `start`."""
    depth = 1
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    raise NotUnderstoodError(f"a parenthesis that does not close: {text[start : start + 80]}")


def _block(text: str, start: int) -> tuple[_Block, int]:
    """Return the block that starts somewhere, and where its brace closes."""
    found = _Block()
    own, place = [], start
    while True:
        match = _TOKEN.search(text, place)
        if match is None or match[0] == "}":
            end = match.start() if match else len(text)
            own.append(text[place:end])
            found.text = "".join(own)
            return found, end
        own.append(text[place : match.start()])
        if match[0] == "{":  # an initializer or a lambda
            inner, end = _block(text, match.end())
            own.append("{" + inner.text + "}")
            place = end + 1
            continue
        if match[0].endswith("{"):
            condition, opened = "true", match.end()
        else:
            closed = _closing(text, match.end())
            condition = text[match.end() : closed]
            brace = re.compile(r"\s*\{").match(text, closed + 1)
            if brace is None:
                raise NotUnderstoodError(f"if({condition.strip()[:200]}) without braces")
            opened = brace.end()
        inner, end = _block(text, opened)
        if match[0].startswith("else"):
            if not found.chains:
                raise NotUnderstoodError("an else without its if")
            found.chains[-1].append((condition, inner))
        else:
            found.chains.append([(condition, inner)])
        place = end + 1


@cache
def _compiled(condition: str) -> CodeType:
    return compile(_parsed(condition), "<dispatch>", "eval")


def _compared(match: re.Match[str]) -> str:
    """Return std::string's `compare` as Python; of another part than the whole text, as it was."""
    of, length, other = match.groups()
    if length is None:
        return f'{of} == "{other}"'
    return f'begins({of}, "{other}")' if int(length) == len(other) else match[0]


def _parsed(condition: str) -> ast.Expression:
    """Return a condition as Python: comparisons, arithmetic, members of `a` and `t`.

    Raises:
        NotUnderstoodError: it has something else.
    """
    text = " ".join(without_comments(condition).split())
    text = _SAME.sub(lambda match: str(match[1] == match[2]), text)
    text = _COMPARED.sub(_compared, text)
    text = re.sub(r"\b\w+::(\w+)", r'"\1"', text)
    text = _WORD.sub(lambda match: _WORDS.get(match[0], " not "), text)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise NotUnderstoodError(f"the condition `{condition.strip()[:200]}`") from None
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id == "begins"
        )
        if not isinstance(node, _ALLOWED) or called:
            raise NotUnderstoodError(f"the condition `{condition.strip()[:200]}`")
    return tree


Known = dict[str, bool]


def _literals(node: ast.expr) -> Known:
    """Return what a condition says of its parts: those that hold, and those that do not."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return {part: value for one in node.values for part, value in _literals(one).items()}
    if isinstance(node, (ast.BoolOp, ast.Constant)):
        return {}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _literals(node.operand)
        return {part: not value for part, value in inner.items()} if len(inner) == 1 else {}
    part, value = _atom(node)
    return {part: value}


def _atom(node: ast.expr) -> tuple[str, bool]:
    """Return a comparison as text, and whether it holds or its opposite does."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq):
        equal = ast.Compare(node.left, [ast.Eq()], node.comparators)
        return ast.unparse(equal), False
    return ast.unparse(node), True


def _value(node: ast.expr, known: Known, open_: set[str]) -> bool | None:
    """Return what a condition comes to, None where that depends on parts that are not known.

    Args:
        open_: gets these parts.
    """
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _value(node.operand, known, open_)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        decisive = isinstance(node.op, ast.Or)
        values = [_value(one, known, open_) for one in node.values]
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    part, holds = _atom(node)
    multiple = _MULTIPLE.fullmatch(part)
    value = known.get(part)
    if value is None and multiple is not None:
        # What is a multiple of 64 is one of 8.
        others = (_MULTIPLE.fullmatch(other) for other, true in known.items() if true)
        steps = [int(other[2]) for other in others if other and other[1] == multiple[1]]
        value = any(step % int(multiple[2]) == 0 for step in [*steps, 1]) or None
    if value is None:
        open_.add(part)
        return None
    return value == holds


def _covering(body: ast.expr, front: list[tuple[ast.expr, _Row]]) -> _Row:
    """Return kernels of rows in front that take all that a condition takes, () where some is left.

    Every way in which the parts can turn out that the condition leaves open is tried.
    """
    known = _literals(body)
    parts: set[str] = set()
    able = [(one, row) for one, row in front if _value(one, known, parts) is not False]
    if not able or len(parts) > _MOST_PARTS:
        return ()
    taken: dict[str, None] = {}
    for values in product((False, True), repeat=len(parts)):
        now = known | dict(zip(sorted(parts), values, strict=True))
        row = next((row for one, row in able if _value(one, now, set()) is True), None)
        if row is None:
            return ()
        taken |= dict.fromkeys(row)
    return tuple(name for name in dict.fromkeys(n for _, r in able for n in r) if name in taken)


class _Members:
    """The members of an object of CK; one that is not known is an error."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name = name
        self._values = values

    def __getattr__(self, member: str) -> Any:
        try:
            return self._values[member]
        except KeyError:
            raise NotUnderstoodError(f"{self._name}.{member} in the dispatch") from None


def _begins(text: str, start: str) -> bool:
    return text.startswith(start)


class Dispatch:
    """The dispatch of a direction, with the kernel instances that its rows launch.

    Attributes:
        rows: kernel instances of each row that launches one of these, in its order.
        hidden: rows that are never reached, with the kernel instances of those in front that take
            all of their problems.
    """

    def __init__(self, text: str, kernels: Mapping[str, str]) -> None:
        """Read a dispatch.

        Args:
            text: C++.
            kernels: source of each kernel instance, by name.

        Raises:
            NotUnderstoodError: it is of another form.
        """
        start = _START.search(text)
        if start is None:
            raise NotUnderstoodError("a dispatch that asks neither a device nor a data type")
        self._tree, _ = _block(text, start.start())
        self._links = Links(kernels)
        self._named: dict[str, tuple[str, ...]] = {}
        self.hidden: dict[_Row, _Row] = {}
        self.rows = tuple(dict.fromkeys(self._all(self._tree, "")))

    def taken(self, problem: Problem, device: str) -> tuple[str, ...]:
        """Return the kernel instances that a problem is launched with, () where it is refused.

        Args:
            device: its arch.

        Raises:
            NotUnderstoodError: a condition asks for what a problem does not say.
        """
        names = {
            "a": _Members("a", problem.arguments()),
            "t": _Members("t", problem.traits()),
            "device_name": device,
            "begins": _begins,
            "__builtins__": {},
        }
        found = self._walk(self._tree, names)
        return () if found is None else self._kernels(found)

    def _walk(self, block: _Block, names: dict[str, Any]) -> str | None:
        for chain in block.chains:
            for condition, inner in chain:
                try:
                    takes = eval(_compiled(condition), names)
                except NameError as error:
                    raise NotUnderstoodError(f"{error} in `{condition.strip()[:200]}`") from None
                if takes:
                    found = self._walk(inner, names)
                    if found is not None:
                        return block.text + found
                    break
        return block.text if not block.chains and "traits_<" in block.text else None

    def _all(self, block: _Block, before: str) -> Iterator[tuple[str, ...]]:
        text = before + block.text
        for chain in block.chains:
            front: dict[frozenset[tuple[str, bool]], list[tuple[ast.expr, _Row]]] = {}
            for condition, inner in chain:
                rows = list(self._all(inner, text))
                yield from rows
                if len(rows) != 1 or inner.chains:
                    continue
                # Rows for other traits take none of its problems.
                body = _parsed(condition).body
                traits = ((k, v) for k, v in _literals(body).items() if k.startswith("t."))
                alike = front.setdefault(frozenset(traits), [])
                if taken := _covering(body, alike):
                    self.hidden[rows[0]] = taken
                else:
                    alike.append((body, rows[0]))
        if not block.chains and (found := self._kernels(text)):
            yield found

    def hidden_by(self, kernel: str) -> tuple[str, ...]:
        """Return kernels that are launched in place of one that never is, () where it is."""
        rows = rows_of(self, kernel)
        if not rows or any(row not in self.hidden for row in rows):
            return ()
        return self.hidden[rows[0]]

    def _kernels(self, text: str) -> tuple[str, ...]:
        if text not in self._named:
            arch = arch_of(text)
            found = [f for traits in traits_of(text) for f in self._links.files(traits, arch)]
            self._named[text] = tuple(dict.fromkeys(found))
        return self._named[text]


def rows_of(dispatch: Dispatch, kernel: str) -> Sequence[tuple[str, ...]]:
    """Return the rows of a dispatch that launch a kernel instance."""
    return [row for row in dispatch.rows if kernel in row]
