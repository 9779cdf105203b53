"""Which files a part of qola is made of, found by its imports: nobody keeps a list.

A room is a directory of modules with the data beside them, or a module right below qola/.
Repository rules watch, and keys of prebuilt bundles hash, the rooms that their program reaches.

Run as ``python -m qola.rooms MODULE``: prints the files of MODULE's rooms, a path below the
directory that holds qola/ a line.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent
_NO_SOURCES = ("BUILD.bazel", "__pycache__", "_ruleset")


def module_file(module: str, package: Path = PACKAGE) -> Path | None:
    """Return the file of a module, such as qola.plan.model; None where there is none."""
    base = package.parent.joinpath(*module.split("."))
    found = [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()]
    return found[0] if found else None


def imports(file: Path, package: Path = PACKAGE) -> Iterator[Path]:
    """Yield the files of qola's modules that a module imports, or names to run or import later."""
    above = file.relative_to(package.parent).parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            start = above[: -node.level] if node.level else ()
            module = ".".join((*start, node.module) if node.module else start)
            below = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if module_file(name, package) else module for name in below]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value.replace(".", "").isidentifier() else []
        for name in names:
            # The package itself imports nothing that is not asked for by its own name.
            if name.startswith("qola.") and (found := module_file(name, package)):
                yield found


def room_of(file: Path, package: Path = PACKAGE) -> Path:
    """Return the room of a module: its directory, or the module itself right below qola/."""
    return file if file.parent == package else file.parent


def files_of_room(room: Path) -> list[Path]:
    """Return a room's files: its modules, and data in directories that hold no modules."""
    if room.is_file():
        return [room]
    found: list[Path] = []
    for path in sorted(room.iterdir()):
        if path.name in _NO_SOURCES:
            continue
        if path.is_file():
            found.append(path)
        elif not (path / "__init__.py").is_file():
            below = (file for file in sorted(path.rglob("*")) if file.is_file())
            found += [file for file in below if file.parent.name not in _NO_SOURCES]
    return found


def sources_of(*modules: str, package: Path = PACKAGE) -> tuple[Path, ...]:
    """Return the files of all rooms that modules reach through imports, sorted.

    Raises:
        ModuleNotFoundError: there is no such module.
    """
    todo = [package / "__init__.py", package / "rooms.py"]
    for module in modules:
        if (file := module_file(module, package)) is None:
            raise ModuleNotFoundError(module)
        todo.append(file)
    rooms: set[Path] = set()
    found: set[Path] = set()
    while todo:
        room = room_of(todo.pop(), package)
        if room in rooms:
            continue
        rooms.add(room)
        files = files_of_room(room)
        found.update(files)
        if room != package / "__init__.py":
            todo += [f for file in files if file.suffix == ".py" for f in imports(file, package)]
    return tuple(sorted(found))


if __name__ == "__main__":
    for source in sources_of(*sys.argv[1:]):
        print(source.relative_to(PACKAGE.parent).as_posix())
