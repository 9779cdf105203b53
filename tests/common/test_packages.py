"""Imports go down the layers, BUILD files declare them, and only relevant edits plan anew."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from qola.packages import QOLA, find_imports, find_sources

GROUND, API, TOP = "ground", ("api", "build_tools"), ("__init__", "__main__")


def layers() -> list[list[str]]:
    tree = ast.parse((QOLA / "layers.bzl").read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    found: list[list[str]] = ast.literal_eval(value)
    return found


HEIGHT = {package: height for height, layer in enumerate(layers()) for package in layer}


def package_of(file: Path) -> str:
    first = file.relative_to(QOLA).parts[0].removesuffix(".py")
    if first in HEIGHT:
        return first
    return "api" if first in API else GROUND


@cache
def package_imports() -> list[tuple[Path, Path]]:
    """Pairs of files of two packages, of which the first imports the second."""
    return [
        (file, imported)
        for file in sorted(QOLA.rglob("*.py"))
        if file.parent != QOLA or file.stem not in TOP
        for imported in sorted(set(find_imports(file)))
        if package_of(imported) != package_of(file)
    ]


def test_no_import_goes_up() -> None:
    """Prevents: a package that imports higher ones, and cycles between packages."""
    up = [
        f"{file.relative_to(QOLA)} imports {imported.relative_to(QOLA)}"
        for file, imported in package_imports()
        if HEIGHT[package_of(imported)] >= HEIGHT[package_of(file)]
    ]
    assert not up, "\n".join(up)


@pytest.mark.parametrize("package", [name for name in HEIGHT if name not in (GROUND, "api")])
def test_build_files_declare_imports(package: str) -> None:
    """Prevents: edits that run unrelated tests, or a module that is missing in Bazel."""
    text = (QOLA / package / "BUILD.bazel").read_text("utf-8")
    declared = set(re.findall(r'"//qola[/:](\w+)[":]', text)) - {"layers"}
    imported = {
        package_of(imported) for file, imported in package_imports() if package_of(file) == package
    }
    # The ground contains qola/__init__.py, which every package needs.
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
def test_sources_of_planning(edited: str, counts: bool) -> None:
    """Prevents: a new plan after an edit of the command line, or generators nobody watches."""
    assert (QOLA / edited).is_file()
    assert (QOLA / edited in find_sources("qola.repository")) == counts


def test_fetching_has_fewer_sources_than_planning() -> None:
    """Prevents: AITER fetched again after any edit."""
    fetching = {path.parent.name for path in find_sources("qola.fetch.git")}
    assert fetching == {"qola", "fetch"}


def test_a_missing_module() -> None:
    """Prevents: a repository rule that watches nothing because of a misspelled name."""
    with pytest.raises(ModuleNotFoundError, match=r"qola\.nowhere"):
        find_sources("qola.nowhere")


def test_main_started_as_a_file() -> None:
    """Prevents: packages that hide modules of Python's library (3.10 has no PYTHONSAFEPATH)."""
    environ = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(QOLA / "__main__.py"), "--version"]
    result = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert result.stdout.startswith(b"qola "), result.stderr


def test_a_repository_rule_needs_no_pip_packages() -> None:
    """Prevents: a rule whose program imports packages that only other rules install."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['unidiff', 'minisign', 'urllib3']))"
    program = f"{hide}; import qola.repository.__main__"
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-B", "-c", program], env=environ, check=True)
