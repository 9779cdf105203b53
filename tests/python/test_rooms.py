"""Rooms: arrows point down, BUILD files say the same, and an edit counts where it matters."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from qola import rooms

PACKAGE = rooms.PACKAGE
GROUND, API, ROOF = "ground", ("api", "build_tools"), ("__init__", "__main__")


def layers() -> list[list[str]]:
    tree = ast.parse((PACKAGE / "layers.bzl").read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    found: list[list[str]] = ast.literal_eval(value)
    return found


HEIGHT = {room: height for height, layer in enumerate(layers()) for room in layer}


def room_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if first in HEIGHT:
        return first
    return "api" if first in API else GROUND


@cache
def arrows() -> list[tuple[Path, Path]]:
    """Pairs of files of two rooms, of which the first imports the second."""
    return [
        (file, found)
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.parent != PACKAGE or file.stem not in ROOF
        for found in sorted(set(rooms.imports(file)))
        if room_of(found) != room_of(file)
    ]


def test_no_import_goes_up() -> None:
    """Prevents: a room that drags in those above it, and circles between rooms."""
    up = [
        f"{file.relative_to(PACKAGE)} imports {found.relative_to(PACKAGE)}"
        for file, found in arrows()
        if HEIGHT[room_of(found)] >= HEIGHT[room_of(file)]
    ]
    assert not up, "\n".join(up)


@pytest.mark.parametrize("room", [room for room in HEIGHT if room not in (GROUND, "api")])
def test_build_files_declare_what_is_imported(room: str) -> None:
    """Prevents: edits that run tests they cannot change, or a module that is missing in Bazel."""
    text = (PACKAGE / room / "BUILD.bazel").read_text("utf-8")
    declared = set(re.findall(r'"//qola[/:](\w+)[":]', text)) - {"layers"}
    imported = {room_of(found) for file, found in arrows() if room_of(file) == room}
    # The ground has qola/__init__.py, which a room needs that imports nothing of it.
    assert declared == imported | {GROUND}


@pytest.mark.parametrize(
    ("edited", "counts"),
    [
        ("cli/plan.py", False),
        ("build/setup.py", False),
        ("prebuilt/key.py", False),
        ("api.py", False),
        ("inspect/costs.json", False),
        ("codegen/ck/driver.py", True),
        ("codegen/asm/run_script.py", True),
        ("codegen/asm/patches/pins.json", True),
        ("plan/batches.py", True),
        ("errors.py", True),
    ],
)
def test_what_plans(edited: str, counts: bool) -> None:
    """Prevents: a comment in the command line that plans anew, or generators nobody watches."""
    assert (PACKAGE / edited).is_file()
    assert (PACKAGE / edited in rooms.sources_of("qola.repository")) == counts


def test_what_fetches_is_less_than_what_plans() -> None:
    """Prevents: AITER fetched again after any edit."""
    fetching = {path.parent.name for path in rooms.sources_of("qola.fetch.git")}
    assert fetching == {"qola", "fetch"}


def test_a_module_that_is_not_there() -> None:
    """Prevents: a repository rule that watches nothing because of a name that is wrong."""
    with pytest.raises(ModuleNotFoundError, match=r"qola\.nowhere"):
        rooms.sources_of("qola.nowhere")


def test_a_program_that_is_started_as_a_file() -> None:
    """Prevents: rooms that hide Python's own modules: Python 3.10 knows no PYTHONSAFEPATH."""
    environ = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(PACKAGE / "__main__.py"), "--version"]
    said = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert said.stdout.startswith(b"qola "), said.stderr


def test_a_repository_rule_needs_no_packages() -> None:
    """Prevents: a rule whose program imports what only other rules install."""
    told = "import sys; sys.modules.update(dict.fromkeys(['unidiff', 'minisign', 'urllib3']))"
    program = f"{told}; import qola.repository.__main__"
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-B", "-c", program], env=environ, check=True)
