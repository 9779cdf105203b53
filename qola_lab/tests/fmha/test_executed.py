"""Notebooks executed by Jupyter: their outputs must match the stored outputs."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOKS = ROOT / "examples/notebooks"
PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()
#: Cells of kernel.ipynb whose outputs depend on the compiler; the first cell prints it.
COMPILED = ("taken", "fewer", "others", "run")
#: Numbers in the notebooks' texts that depend on how a CPU rounds.
ROUNDED = re.compile(r"\d+\.\d+(?:e-\d+)?")
#: Runs before the first cell: return Bazel's libraries instead of running Bazel again.
STARTUP = """\
import pathlib
import qola_lab.fmha.build as _build

def _built(manifest):
    assert pathlib.Path(manifest).name == "ci.toml" and pathlib.Path(manifest).is_file()
    return _build.built_by(pathlib.Path({program!r}))

_build.build_libraries = _built
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirect all files of Jupyter, matplotlib and qola to the test's directory."""
    startup = tmp_path / "ipython/profile_default/startup/built.py"
    startup.parent.mkdir(parents=True)
    startup.write_text(STARTUP.format(program=str(PROGRAM)), "utf-8")
    for variable, name in {
        "HOME": "home",
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "jupyter",
        "JUPYTER_DATA_DIR": "jupyter",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "MPLCONFIGDIR": "matplotlib",
        "QOLA_CACHE_HOME": "cache",
    }.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def outputs_of(notebook: nbformat.NotebookNode) -> dict[str, list[dict[str, Any]]]:
    """Return the outputs of each cell with code, by the cell's id."""
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def read_notebook(name: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    return notebook


@pytest.mark.parametrize("name", ["coverage", "kernel"])
def test_outputs_match_the_stored_notebook(name: str) -> None:
    """Prevents: a notebook whose code fails, or whose stored outputs are out of date."""
    before, notebook = read_notebook(name), read_notebook(name)
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    client = nbclient.NotebookClient(notebook, timeout=300, resources=place, record_timing=False)
    client.execute()
    notebook.metadata = before.metadata
    # Bazel preserves files in this directory.
    results = Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", os.environ["HOME"]))
    results.mkdir(exist_ok=True)
    new = results / f"{name}.ipynb"
    new.write_text(nbformat.writes(notebook) + "\n", "utf-8")
    check_stored(
        outputs_of(before), outputs_of(notebook), f"if the change is intended, store {new}"
    )


def compiler_of(outputs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the first line of the cell that prints the compiler."""
    texts = (
        output["text"] for output in outputs.get("taken", ()) if output["output_type"] == "stream"
    )
    return "".join(texts).partition("\n")[0]


def check_stored(
    before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]], fix: str
) -> None:
    """Compare outputs, as far as the notebook, the tree and the compiler determine them."""
    for name, outputs in after.items():
        if name in COMPILED and compiler_of(before) != compiler_of(after):
            continue
        (text, numbers), (new_text, new_numbers) = (
            split_numbers(before[name]),
            split_numbers(outputs),
        )
        assert text == new_text, f"{name}: {fix}"
        assert numbers == pytest.approx(new_numbers, rel=0.2), f"{name}: {fix}"


def split_numbers(outputs: list[dict[str, Any]]) -> tuple[list[Any], list[float]]:
    """Return the outputs without numbers and images, and the numbers, which may be rounded."""
    parts: list[Any] = []
    for output in outputs:
        # A plot's bytes depend on matplotlib's version.
        data = {kind: text for kind, text in output.get("data", {}).items() if "image" not in kind}
        kinds = sorted(output.get("data", {}))
        parts.append((output["output_type"], kinds, data, output.get("text")))
    text = json.dumps(parts, sort_keys=True)
    return json.loads(ROUNDED.sub("#", text)), [float(number) for number in ROUNDED.findall(text)]
