"""Stored notebooks: fixed metadata, no output of a single machine, and valid imports."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "examples/notebooks").glob("*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

PLACE = re.compile(r"(?<![\w.])(?:~?/|[A-Z]:\\)[\w.~-]+")
TIME = re.compile(
    r"\d ?(?:[mnµ]?s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?)\b|\d:\d\d|\b\d{4}-\d\d-\d\d"
)

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def read_cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text("utf-8"))["cells"]
    return found


def read_code(notebook: Path) -> list[str]:
    """Return the text of each cell with code."""
    return ["".join(c["source"]) for c in read_cells(notebook) if c["cell_type"] == "code"]


@each_notebook
def test_metadata_is_fixed(notebook: Path) -> None:
    """Prevents: metadata or counts that change with each run, such as times of cells."""
    data = json.loads(notebook.read_text("utf-8"))
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    assert data["metadata"] == METADATA
    names = [cell["id"] for cell in data["cells"]]
    assert len(set(names)) == len(names)
    assert all(cell["metadata"] == {} for cell in data["cells"])
    counts = [cell["execution_count"] for cell in data["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.read_text("utf-8") == json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@each_notebook
def test_outputs_have_no_times_or_paths(notebook: Path) -> None:
    """Prevents: a notebook without outputs on GitHub, or with paths and times of one machine."""
    shown = 0
    for cell in read_cells(notebook):
        for output in cell.get("outputs", ()):
            assert output["output_type"] in ("display_data", "execute_result", "stream"), cell["id"]
            assert output.get("name", "stdout") == "stdout", cell["id"]
            data = {"text": output.get("text", ""), **output.get("data", {})}
            text = "".join(line for kind in data if kind != "image/png" for line in data[kind])
            assert not PLACE.search(text), cell["id"]
            assert not TIME.search(text), cell["id"]
            shown += 1
    assert shown >= 3


@each_notebook
def test_imports_of_qola_exist(notebook: Path) -> None:
    """Prevents: a notebook whose code does not compile, or that imports a renamed function."""
    imported = 0
    for text in read_code(notebook):
        for node in ast.walk(ast.parse(text, notebook.name)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("qola."):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    place = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.import_module(place), place
                    imported += 1
    assert imported > 1
