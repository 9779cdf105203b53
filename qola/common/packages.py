"""Finds the source files of a program by its imports, which repository rules watch and keys hash.

A part is a directory of `PARTS`. A package is a directory of modules and their data files below it,
or a single module of `_SMALL`. ``python -m qola.common.packages MODULE`` prints the files, relative
to `ROOT`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).absolute().parents[2]
"""The directory of the parts: a checkout, Bazel's runfiles of it, or site-packages.

Not resolved: among runfiles every file is a link of its own.
"""
QOLA = ROOT / "qola"
PARTS = ("gfxemu", "qola", "qola_base", "qola_lab")
"""The parts with Python that imports other Python of the checkout (rules/layers.bzl)."""

#: Directories of modules that are packages of their own: an edit of one leaves users of another
#: alone.
_SMALL = ("qola", "qola/common", "qola_base")
_NO_SOURCES = ("BUILD.bazel", "__pycache__", "_ruleset", "tests")


def find_sources(*modules: str, root: Path = ROOT) -> tuple[Path, ...]:
    """Return the files of all packages that the modules reach through imports, sorted.

    Raises:
        ModuleNotFoundError: a module does not exist.
    """

    def files(module: Path) -> list[Path]:
        small = module.parent.relative_to(root).as_posix() in _SMALL
        return _package_files(module if small else module.parent)

    return _reach(["qola.common.packages", *modules], files, root)


def find_modules(*modules: str, root: Path = ROOT) -> tuple[Path, ...]:
    """Return modules and all modules that they reach through imports, sorted.

    Unlike `find_sources` without other modules of their packages.

    Raises:
        ModuleNotFoundError: a module does not exist.
    """
    return _reach(modules, lambda module: [module], root)


def _reach(
    modules: Sequence[str], files: Callable[[Path], list[Path]], root: Path
) -> tuple[Path, ...]:
    """Follow imports, except those of a part's own __init__.py.

    Args:
        files: returns the files to take with a module, whose imports are followed, too.
    """
    todo: list[Path] = []
    for name in modules:
        if (file := _module_file(name, root)) is None:
            raise ModuleNotFoundError(name)
        todo.append(file)
    tops = {root / part / "__init__.py" for part in PARTS}
    found: set[Path] = set()
    while todo:
        if (module := todo.pop()) not in found:
            new = {*files(module), root / module.relative_to(root).parts[0] / "__init__.py"} - found
            found |= new
            for one in new - tops:
                if one.suffix == ".py":
                    todo += find_imports(one, root)
    return tuple(sorted(found))


def find_imports(file: Path, root: Path = ROOT) -> Iterator[Path]:
    """Yield the files of the parts' modules that a module imports or names in a string."""
    above = file.relative_to(root).parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            start = above[: -node.level] if node.level else ()
            module = ".".join((*start, node.module) if node.module else start)
            parts = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if _module_file(name, root) else module for name in parts]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.replace(".", "").isidentifier() else []
        for name in names:
            # A part's own __init__.py imports other modules only on demand, by their names.
            part, _, below = name.partition(".")
            if part in PARTS and below and (imported := _module_file(name, root)):
                yield imported


def _module_file(module: str, root: Path) -> Path | None:
    base = root.joinpath(*module.split("."))
    files = [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()]
    return files[0] if files else None


def _package_files(package: Path) -> list[Path]:
    """Return the modules of a package, and data in subdirectories that are not packages."""
    if package.is_file():
        return [package]
    files: list[Path] = []
    for path in sorted(package.iterdir()):
        if path.name in _NO_SOURCES:
            continue
        if path.is_file():
            files.append(path)
        elif not (path / "__init__.py").is_file():
            below = (file for file in sorted(path.rglob("*")) if file.is_file())
            files += [file for file in below if file.parent.name not in _NO_SOURCES]
    return files


if __name__ == "__main__":
    for source in find_sources(*sys.argv[1:]):
        print(source.relative_to(ROOT).as_posix())
