"""Layers of packages, imports that BUILD files declare, and the watched sources of rules."""

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


def read_layers() -> list[list[str]]:
    tree = ast.parse((QOLA / "layers.bzl").read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    result: list[list[str]] = ast.literal_eval(value)
    return result


HEIGHT = {package: height for height, layer in enumerate(read_layers()) for package in layer}


def package_of(file: Path) -> str:
    first = file.relative_to(QOLA).parts[0].removesuffix(".py")
    if first in HEIGHT:
        return first
    return "api" if first in API else GROUND


@cache
def package_imports() -> list[tuple[Path, Path]]:
    """Return pairs of files in different packages, of which the first imports the second."""
    return [
        (file, imported)
        for file in sorted(QOLA.rglob("*.py"))
        if file.parent != QOLA or file.stem not in TOP
        for imported in sorted(set(find_imports(file)))
        if package_of(imported) != package_of(file)
    ]


def test_imports_go_to_lower_layers() -> None:
    """Prevents: a package that imports a higher package, and cycles between packages."""
    upward = [
        f"{file.relative_to(QOLA)} imports {imported.relative_to(QOLA)}"
        for file, imported in package_imports()
        if HEIGHT[package_of(imported)] >= HEIGHT[package_of(file)]
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("package", [name for name in HEIGHT if name not in (GROUND, "api")])
def test_build_files_declare_imports(package: str) -> None:
    """Prevents: edits that run unrelated tests, or a module that is missing in Bazel."""
    text = (QOLA / package / "BUILD.bazel").read_text("utf-8")
    declared = set(re.findall(r'"//qola[/:](\w+)[":]', text)) - {"layers"}
    imported = {
        package_of(imported) for file, imported in package_imports() if package_of(file) == package
    }
    # The target "ground" contains qola/__init__.py, which every package needs.
    assert declared == imported | {GROUND}


@pytest.mark.parametrize(
    ("edited", "watched"),
    [
        ("cli/plan.py", False),
        ("build/setup.py", False),
        ("prebuilt/key.py", False),
        ("api.py", False),
        ("query/costs.json", False),
        ("codegen/ck/driver.py", True),
        ("codegen/asm/run_script.py", True),
        ("codegen/asm/patches/pins.json", True),
        ("plan/batches.py", True),
        ("errors.py", True),
    ],
)
def test_sources_of_planning(edited: str, watched: bool) -> None:
    """Prevents: a new plan after an edit of the command line, or unwatched generator code."""
    assert (QOLA / edited).is_file()
    assert (QOLA / edited in find_sources("qola.repository")) == watched


def test_fetching_has_fewer_sources_than_planning() -> None:
    """Prevents: AITER fetched again after unrelated edits."""
    fetching = {path.parent.name for path in find_sources("qola.fetch.git")}
    assert fetching == {"qola", "fetch"}


def test_missing_module_is_an_error() -> None:
    """Prevents: a repository rule that watches nothing because of a misspelled name."""
    with pytest.raises(ModuleNotFoundError, match=r"qola\.nowhere"):
        find_sources("qola.nowhere")


def test_main_runs_as_a_file() -> None:
    """Prevents: packages of qola that hide standard modules (3.10 has no PYTHONSAFEPATH)."""
    environ = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(QOLA / "__main__.py"), "--version"]
    result = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert result.stdout.startswith(b"qola "), result.stderr


def test_repository_rules_need_no_pip_packages() -> None:
    """Prevents: a repository rule whose program imports packages that only other rules install."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['unidiff', 'minisign', 'urllib3']))"
    program = f"{hide}; import qola.repository.__main__"
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-B", "-c", program], env=environ, check=True)
