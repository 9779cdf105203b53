"""Notebooks as they lie there: valid, without outputs, and of names that qola has."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples/notebooks").glob("*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text("utf-8"))["cells"]
    return found


def code_of(notebook: Path) -> list[str]:
    """Return the text of each cell with code."""
    return ["".join(c["source"]) for c in cells_of(notebook) if c["cell_type"] == "code"]


def test_they_are_there() -> None:
    """Prevents: tests that look at no notebook, since they were moved."""
    assert [path.stem for path in NOTEBOOKS] == ["coverage", "kernel"]


@each
def test_nothing_of_a_machine(notebook: Path) -> None:
    """Prevents: outputs, counts or metadata that are another after each run."""
    data = json.loads(notebook.read_text("utf-8"))
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    assert data["metadata"] == METADATA
    names = [cell["id"] for cell in data["cells"]]
    assert len(set(names)) == len(names)
    for cell in data["cells"]:
        assert cell["metadata"] == {}, cell["id"]
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
    assert notebook.read_text("utf-8") == json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@each
def test_qola_has_what_they_import(notebook: Path) -> None:
    """Prevents: a notebook whose code does not compile, or imports what was renamed."""
    imported = 0
    for text in code_of(notebook):
        for node in ast.walk(ast.parse(text, notebook.name)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("qola."):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    place = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.import_module(place), place
                    imported += 1
    assert imported > 1
