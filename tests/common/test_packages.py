"""Layers of packages, imports that BUILD files declare, and the watched sources of rules."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from qola.build.workspace import PROGRAMS
from qola.common.packages import PARTS, QOLA, ROOT, find_imports, find_sources

LAYERS_FILE = ROOT / "rules/layers.bzl"
BY_NAME = {"cli/commands.py", "cli/init.py", "fmha.py"}
"""Files of the core that name modules of the laboratory, which are loaded on demand."""


def read_constant(name: str) -> Any:
    tree = ast.parse(LAYERS_FILE.read_text("utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return ast.literal_eval(value)


def label(part: str, package: str) -> str:
    """Return the path of a package: the path of its part, if both have the same name."""
    return part if part == package else f"{part}/{package}"


MAY_IMPORT: dict[str, list[str]] = read_constant("PARTS")
LINES: dict[str, int] = read_constant("LINES")
HEIGHT: dict[str, int] = {
    label(part, package): height
    for part, layers in read_constant("LAYERS").items()
    for height, layer in enumerate(layers)
    for package in layer
}
FILES = {
    part: [
        file
        for file in sorted((ROOT / part).rglob("*.py"))
        if not {"tests", "_ruleset", "fake_hip"} & set(file.relative_to(ROOT).parts)
    ]
    for part in MAY_IMPORT
}

ALL = {file for part in PARTS for file in FILES[part]}


def package_of(file: Path) -> str:
    """Return the label of a file's package; that of a part's own __init__.py is the part."""
    part, *rest = file.relative_to(ROOT).parts
    if len(rest) > 1 and label(part, rest[0]) in HEIGHT:
        return label(part, rest[0])
    return "qola/api" if part == "qola" and rest != ["__init__.py"] else part


def named_only(file: Path) -> bool:
    """Whether a file of the core only names modules of the laboratory."""
    return file.is_relative_to(QOLA) and file.relative_to(QOLA).as_posix() in BY_NAME


@cache
def package_imports() -> list[tuple[Path, Path]]:
    """Return pairs of files in different packages, of which the first imports the second."""
    return [
        (file, imported)
        for part in PARTS
        for file in FILES[part]
        if file.parent != QOLA or file.stem not in ("__init__", "__main__")
        for imported in sorted(set(find_imports(file)))
        if package_of(imported) != package_of(file)
        if not (named_only(file) and package_of(imported).startswith("qola_lab"))
    ]


def test_imports_go_to_lower_layers() -> None:
    """Prevents: a package that imports a higher package or part, and cycles between packages."""
    upward = []
    for file, imported in package_imports():
        above, below = package_of(file), package_of(imported)
        part, other = above.split("/")[0], below.split("/")[0]
        fine = HEIGHT.get(below, -1) < HEIGHT[above] if part == other else other in MAY_IMPORT[part]
        if not fine:
            upward.append(f"{file.relative_to(ROOT)} imports {imported.relative_to(ROOT)}")
    assert not upward, "\n".join(upward)


def imports_of(file: Path) -> Iterator[Path]:
    """Yield the modules that a module of the parts imports when it is loaded."""
    body = ast.parse(file.read_text("utf-8")).body
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                place = ROOT.joinpath(*name.split("."))
                yield from (f for f in (place.with_suffix(".py"),) if f in ALL and f != file)


def test_modules_import_each_other_in_no_circle() -> None:
    """Prevents: modules that can only be read, and changed, all at once."""
    TopologicalSorter({file: [*imports_of(file)] for file in ALL}).prepare()


def test_files_of_users_stand_alone() -> None:
    """Prevents: a module that is copied into a wheel or an image and imports qola there."""
    for file in FILES["runtime"]:
        text = file.read_text("utf-8")
        assert not re.search(rf"^\s*(?:from|import) (?:{'|'.join(PARTS)})\b", text, re.M), file


def test_labels_in_python_have_packages() -> None:
    """Prevents: a workspace or message with a label of a package that was moved."""
    label = re.compile(r"(?:@qola|(?<![\w/:]))//((?:gfxemu|qola|qola_lab|rules|runtime)[\w/]*)")
    texts = [file.read_text("utf-8") for part in PARTS for file in FILES[part]]
    programs = [f"@qola//qola_lab/{package}" for package in PROGRAMS.values()]
    packages = {name.rstrip("/") for text in [*texts, *programs] for name in label.findall(text)}
    assert len(packages) >= 8
    for package in sorted(packages):
        assert (ROOT / package / "BUILD.bazel").is_file(), package


@pytest.mark.parametrize("part", LINES)
def test_parts_keep_their_budgets(part: str) -> None:
    """Prevents: a part that grows beyond what one person can hold in mind, unnoticed."""
    lines = sum(file.read_text("utf-8").count("\n") for file in FILES[part])
    assert lines <= LINES[part], f"{LAYERS_FILE}: LINES"


@pytest.mark.parametrize("package", [name for name in HEIGHT if name != "qola/api"])
def test_build_files_declare_imports(package: str) -> None:
    """Prevents: edits that run unrelated tests, or a module that is missing in Bazel."""
    text = (ROOT / package / "BUILD.bazel").read_text("utf-8")
    declared = {
        found.replace(":api", "/api")
        for found in re.findall(r'"//((?:qola|gfxemu)[\w/]*(?::api)?)"', text)
    }
    imported = {
        package_of(imported)
        for file, imported in package_imports()
        if package_of(file) == package and package_of(imported) not in ("qola", "qola_lab")
    }
    # The target with qola/__init__.py, which every package of the core needs.
    needed = {"qola/common"} if package.startswith("qola/") and package != "qola/common" else set()
    if package == "qola_base/code_object":
        needed = {"qola_base"}
    assert declared == imported | needed


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
        ("common/folder.py", True),
        ("cli/laboratory.py", False),
        ("../qola_base/errors.py", True),
        ("../qola_base/runpath.py", False),
    ],
)
def test_sources_of_planning(edited: str, watched: bool) -> None:
    """Prevents: a new plan after an edit of the command line, or unwatched generator code."""
    file = Path(os.path.normpath(QOLA / edited))
    assert file.is_file()
    assert (file in find_sources("qola.repository")) == watched


def test_fetching_has_fewer_sources_than_planning() -> None:
    """Prevents: AITER fetched again after unrelated edits."""
    fetching = {path.parent.name for path in find_sources("qola.fetch.git")}
    assert fetching == {"common", "fetch", "qola", "qola_base"}


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
