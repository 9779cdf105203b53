"""Evaluates BUILD files as Bazel's loading phase does, to find the targets that they declare.

Starlark is close enough to Python to run as Python: macros of this repository run, and every rule
is a function that records its call. Values that only matter to Bazel are placeholders.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

from tests.support.checkout import checkout_root

ROOT = checkout_root()


class _Placeholder:
    """A value of Bazel's, such as an attribute's schema: any operation on it is one, too."""

    def __getattr__(self, name: str) -> _Placeholder:
        return self

    def __call__(self, *values: object, **named: object) -> _Placeholder:
        return self

    def __add__(self, other: object) -> _Placeholder:
        return self

    __radd__ = __or__ = __ror__ = __getitem__ = __mod__ = __add__

    def __iter__(self) -> Iterator[object]:
        return iter(())


class _Package:
    """The package of a BUILD file.

    Attributes:
        name: of a package of this repository.
        files: the evaluated BUILD file and the .bzl files that it loads.
        targets: attributes of each target by its name, with the rule's name as `kind`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.name = directory.relative_to(ROOT).as_posix() if ROOT in directory.parents else ""
        self.files: dict[Path, _Globals] = {}
        self.targets: dict[str, dict[str, Any]] = {}

    def record(self, kind: str, **values: Any) -> None:
        """Declare a target if a name is given."""
        if isinstance(name := values.get("name"), str):
            assert name not in self.targets, f"{self._directory}: two targets {name}"
            self.targets[name] = {"kind": kind, **values}

    def glob(self, include: list[str], exclude: Sequence[str] = (), **_: object) -> list[str]:
        """Return the sorted paths of files that a pattern matches."""

        def matching(patterns: Sequence[str]) -> set[Path]:
            return {path for pattern in patterns for path in self._directory.glob(pattern)}

        found = {path for path in matching(include) - matching(exclude) if path.is_file()}
        return sorted(path.relative_to(self._directory).as_posix() for path in found)


class _Globals(dict[str, Any]):
    """Names of a Starlark file: those that it defines and loads, and Bazel's."""

    def __init__(self, file: Path, package: _Package) -> None:
        super().__init__(__builtins__={"__build_class__": None})
        self._file, self._package = file, package

    def __missing__(self, name: str) -> Any:
        own: dict[str, Any] = {
            "existing_rule": self._package.targets.get,
            "existing_rules": lambda: self._package.targets,
            "fail": self._fail,
            "glob": self._package.glob,
            "load": self._load,
            "package_name": lambda: self._package.name,
            "rule": self._new_rule,
            "struct": SimpleNamespace,
            "type": lambda value: "string" if isinstance(value, str) else type(value).__name__,
        }
        if name in own:
            return own[name]
        if name == "native":
            return _Native(self)
        if name in ("Label", "package_relative_label"):
            return str
        if hasattr(builtins, name):
            return getattr(builtins, name)
        # A rule of Bazel's such as filegroup, or a module such as cc_common.
        return self._rule(name)

    def _rule(self, kind: str) -> Any:
        record = self._package.record

        class Rule(_Placeholder):
            def __call__(self, *values: object, **named: Any) -> _Placeholder:
                record(kind, **named)
                return self

        return Rule()

    def _new_rule(self, *_: object, **values: Any) -> Any:
        kind = "_test" if values.get("test") else "_flag" if "build_setting" in values else ""
        return self._rule("rule" + kind)

    def _fail(self, *message: object) -> None:
        raise AssertionError(f"{self._file}: {message}")

    def _load(self, label: str, *names: str, **renamed: str) -> None:
        symbols = {name: name for name in names} | renamed
        label = re.sub("^@qola//", "//", label)
        if label.startswith("@") and not label.startswith("@rules_hip//"):
            self.update({name: self._rule(symbol) for name, symbol in symbols.items()})
            return
        directory, _, file = label.rpartition(":")
        of_hip = label.startswith("@") or (ROOT / "rules_hip") in self._file.parents
        root = ROOT / "rules_hip" if of_hip else ROOT
        place = root / directory.partition("//")[2] if directory else self._file.parent
        loaded = _evaluate(place / file, self._package)
        self.update({name: loaded[symbol] for name, symbol in symbols.items()})


class _Native:
    """Bazel's module `native`: the functions of BUILD files."""

    def __init__(self, names: _Globals) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return self._names.__missing__(name)


class _Lists(ast.NodeTransformer):
    """Makes keys(), values() and items() of a dict return lists, as in Starlark."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Put list() around the call."""
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in ("items", "keys", "values"):
            function = ast.copy_location(ast.Name("list", ast.Load()), node)
            return ast.copy_location(ast.Call(function, [node], []), node)
        return node


@cache
def _compile(file: Path) -> CodeType:
    tree = _Lists().visit(ast.parse(file.read_text(encoding="utf-8")))
    return compile(tree, file, "exec")


def _evaluate(file: Path, package: _Package) -> _Globals:
    if file not in package.files:
        names = package.files[file] = _Globals(file, package)
        exec(_compile(file), names)
    return package.files[file]


def evaluate(file: Path) -> dict[str, dict[str, Any]]:
    """Return the targets of a BUILD file by name, with attributes, and the rule's name as `kind`.

    Args:
        file: in this repository, or in another one that knows it as @qola.
    """
    package = _Package(file.parent)
    _evaluate(file, package)
    return package.targets


@cache
def targets(package: str) -> dict[str, dict[str, Any]]:
    """Return the targets of a package of this repository, "" for the root."""
    return evaluate(ROOT / package / "BUILD.bazel")


def symbols(file: str) -> list[str]:
    """Return the names that a .bzl file of this repository defines for BUILD files."""
    names = _evaluate(ROOT / file, _Package(ROOT))
    return [name for name in names if not name.startswith("_")]
