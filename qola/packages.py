"""Finds the source files of a program by its imports, which repository rules watch and keys hash.

A package is a directory of modules and their data files, or a single module directly in qola/.
``python -m qola.packages MODULE`` prints the files, relative to the directory that contains qola/.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["QOLA", "find_imports", "find_modules", "find_sources"]

QOLA = Path(__file__).parent
_NO_SOURCES = ("BUILD.bazel", "__pycache__", "_ruleset")


def find_sources(*modules: str, root: Path = QOLA) -> tuple[Path, ...]:
    """Return the files of all packages that the modules reach through imports, sorted.

    Raises:
        ModuleNotFoundError: a module does not exist.
    """

    def files(module: Path) -> list[Path]:
        return _package_files(module if module.parent == root else module.parent)

    return _reach(["qola.packages", *modules], files, root)


def find_modules(*modules: str, root: Path = QOLA) -> tuple[Path, ...]:
    """Return modules and all modules that they reach through imports, sorted.

    Unlike `find_sources` without other modules of their packages.

    Raises:
        ModuleNotFoundError: a module does not exist.
    """
    return _reach(modules, lambda module: [module], root)


def _reach(
    modules: Sequence[str], files: Callable[[Path], list[Path]], root: Path
) -> tuple[Path, ...]:
    """Follow imports, except those of qola/__init__.py.

    Args:
        files: returns the files to take with a module, whose imports are followed, too.
    """
    todo: list[Path] = []
    for name in modules:
        if (file := _module_file(name, root)) is None:
            raise ModuleNotFoundError(name)
        todo.append(file)
    found = {root / "__init__.py"}
    while todo:
        if (module := todo.pop()) not in found:
            new = {*files(module)} - found
            found |= new
            todo += [file for one in new if one.suffix == ".py" for file in find_imports(one, root)]
    return tuple(sorted(found))


def find_imports(file: Path, root: Path = QOLA) -> Iterator[Path]:
    """Yield the files of the qola modules that a module imports or names in a string."""
    above = file.relative_to(root.parent).parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            start = above[: -node.level] if node.level else ()
            module = ".".join((*start, node.module) if node.module else start)
            below = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if _module_file(name, root) else module for name in below]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.replace(".", "").isidentifier() else []
        for name in names:
            # qola/__init__.py imports other modules only on demand, by their own names.
            if name.startswith("qola.") and (imported := _module_file(name, root)):
                yield imported


def _module_file(module: str, root: Path) -> Path | None:
    base = root.parent.joinpath(*module.split("."))
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
        print(source.relative_to(QOLA.parent).as_posix())
