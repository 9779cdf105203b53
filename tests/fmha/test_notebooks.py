"""Notebooks as they are stored: valid, with outputs of no machine, and of names that qola has."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples/notebooks").glob("*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

PLACE = re.compile(r"(?<![\w.])(?:~?/|[A-Z]:\\)[\w.~-]+")
TIME = re.compile(
    r"\d ?(?:[mnµ]?s|sec(?:ond)?s?|min(?:ute)?s?|h|hours?)\b|\d:\d\d|\b\d{4}-\d\d-\d\d"
)

each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text("utf-8"))["cells"]
    return found


def code_of(notebook: Path) -> list[str]:
    """Return the text of each cell with code."""
    return ["".join(c["source"]) for c in cells_of(notebook) if c["cell_type"] == "code"]


@each
def test_nothing_of_a_machine(notebook: Path) -> None:
    """Prevents: counts or metadata that differ after each run, such as times of cells."""
    data = json.loads(notebook.read_text("utf-8"))
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    assert data["metadata"] == METADATA
    names = [cell["id"] for cell in data["cells"]]
    assert len(set(names)) == len(names)
    assert all(cell["metadata"] == {} for cell in data["cells"])
    counts = [cell["execution_count"] for cell in data["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.read_text("utf-8") == json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@each
def test_outputs_are_there_and_name_no_time_or_place(notebook: Path) -> None:
    """Prevents: a notebook that shows nothing on GitHub, or the paths and times of one machine."""
    shown = 0
    for cell in cells_of(notebook):
        for output in cell.get("outputs", ()):
            assert output["output_type"] in ("display_data", "execute_result", "stream"), cell["id"]
            assert output.get("name", "stdout") == "stdout", cell["id"]
            data = {"text": output.get("text", ""), **output.get("data", {})}
            text = "".join(line for kind in data if kind != "image/png" for line in data[kind])
            assert not PLACE.search(text), cell["id"]
            assert not TIME.search(text), cell["id"]
            shown += 1
    assert shown >= 3


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
