"""Finds the source files of a program by its imports, which repository rules watch and keys hash.

A package is a directory of modules and their data files, or a single module directly in qola/.
``python -m qola.packages MODULE`` prints the files, relative to the directory that contains qola/.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["QOLA", "find_imports", "find_modules", "find_sources"]

QOLA = Path(__file__).parent
_NO_SOURCES = ("BUILD.bazel", "__pycache__", "_ruleset")


def find_sources(*modules: str, root: Path = QOLA) -> tuple[Path, ...]:
    """Return the files of all packages that the modules reach through imports, sorted.

    Raises:
        ModuleNotFoundError: a module does not exist.
    """
    todo = [root / "__init__.py", root / "packages.py"]
    for module in modules:
        if (file := _module_file(module, root)) is None:
            raise ModuleNotFoundError(module)
        todo.append(file)
    packages: set[Path] = set()
    sources: set[Path] = set()
    while todo:
        file = todo.pop()
        package = file if file.parent == root else file.parent
        if package in packages:
            continue
        packages.add(package)
        files = _package_files(package)
        sources.update(files)
        if package != root / "__init__.py":
            todo += [f for file in files if file.suffix == ".py" for f in find_imports(file, root)]
    return tuple(sorted(sources))


def find_modules(module: str, root: Path = QOLA) -> tuple[Path, ...]:
    """Return a module and all modules of qola that it reaches through imports, sorted.

    Unlike `find_sources` without other modules of their packages.

    Raises:
        ModuleNotFoundError: the module does not exist.
    """
    if (file := _module_file(module, root)) is None:
        raise ModuleNotFoundError(module)
    todo, found = [file], {root / "__init__.py"}
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += find_imports(file, root)
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
