"""What of a local AITER tree is watched as a directory."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from qola.aiter import read_tree
from qola.manifest import loads
from qola.plan_request import Request
from qola.watched import watched_dirs

MODULES = """\
[[modules]]
name = "libmha_fwd"
{fwd}

[[modules]]
name = "libmha_bwd"
hsa_subdirs = []
"""
SOURCES = "aiter_meta/csrc/cpp_itfs"


@pytest.mark.parametrize(
    ("fwd", "expected"),
    [
        ("", ["aiter/configs", *(f"aiter_meta/hsa/{a}/fmha_v3_fwd" for a in ("gfx942", "gfx950"))]),
        ("hsa_subdirs = []\nsrcs = [\"f'{AITER_CSRC_DIR}/cpp_itfs'\"]", ["aiter/configs", SOURCES]),
    ],
)
def test_directories_that_decide_a_plan(aiter_tree: Path, fwd: str, expected: list[str]) -> None:
    """Prevents: a code object, table or source added to a local tree that no plan takes up."""
    manifest = loads(MODULES.format(fwd=fwd), file="m.toml")
    request = Request("m", manifest, read_tree(aiter_tree))
    assert watched_dirs(request, ("gfx942", "gfx950")) == tuple(expected)


def imports(root: Path, module: str) -> set[str]:
    """Modules of qola that a module of qola imports, and what these import."""
    found: set[str] = set()
    todo = {module}
    while todo:
        name = todo.pop()
        found.add(name)
        tree = ast.parse((root / "qola" / f"{name}.py").read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        names = {str(node.module) for node in nodes if str(node.module).startswith("qola.")}
        todo |= {name.partition(".")[2] for name in names} - found
    return found - {module}


def test_repository_rules_watch_what_they_import(repo_root: Path) -> None:
    """Prevents: AITER fetched by old code after an edit, or again after any edit."""
    text = (repo_root / "rules/private/host_python.bzl").read_text(encoding="utf-8")
    (assigned,) = (
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_IMPORTS"
    )
    listed = ast.literal_eval(assigned)
    assert "qola.fetch" in listed
    for module, names in listed.items():
        assert names == sorted(imports(repo_root, module.partition(".")[2])), module
