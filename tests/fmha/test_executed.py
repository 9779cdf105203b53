"""Notebooks, executed by Jupyter: what they show is what qola's commands say, and is stored."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib.colors
import matplotlib.image
import nbclient
import nbformat
import pytest

from qola.fmha.build import built_by

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples/notebooks"
PROGRAM = Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()
#: Cells of kernel.ipynb whose outputs depend on the compiler, which the first of them prints.
COMPILED = ("taken", "fewer", "others", "run")
#: Numbers in the notebooks' texts that depend on how a CPU rounds.
ROUNDED = re.compile(r"\d+\.\d+(?:e-\d+)?")
#: Run before the first cell: the libraries that Bazel built, and no Bazel within it.
STARTUP = """\
import pathlib
import qola.fmha.build as _build

def _built(manifest):
    assert pathlib.Path(manifest).name == "ci.toml" and pathlib.Path(manifest).is_file()
    return _build.built_by(pathlib.Path({program!r}))

_build.build_libraries = _built
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all that Jupyter, matplotlib and qola write in the test's directory."""
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


def stored(name: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4)
    nbformat.validate(notebook)
    return notebook


def executed(name: str) -> dict[str, list[dict[str, Any]]]:
    """Execute a notebook, compare its outputs with those stored, and return them."""
    before, notebook = stored(name), stored(name)
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    client = nbclient.NotebookClient(notebook, timeout=300, resources=place, record_timing=False)
    client.execute()
    notebook.metadata = before.metadata
    # Bazel keeps what is written here.
    results = Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", os.environ["HOME"]))
    results.mkdir(exist_ok=True)
    new = results / f"{name}.ipynb"
    new.write_text(nbformat.writes(notebook) + "\n", "utf-8")
    shown = outputs_of(notebook)
    check_stored(outputs_of(before), shown, f"if it is meant, store {new}")
    return shown


def check_stored(
    before: dict[str, list[dict[str, Any]]], after: dict[str, list[dict[str, Any]]], fix: str
) -> None:
    """Compare outputs as far as the notebook, the tree and the compiler determine them."""
    compilers = [printed(outputs.get("taken", []))[:1] for outputs in (before, after)]
    for name, outputs in after.items():
        if name in COMPILED and compilers[0] != compilers[1]:
            continue
        (text, numbers), (new_text, new_numbers) = fixed(before[name]), fixed(outputs)
        assert text == new_text, f"{name}: {fix}"
        assert numbers == pytest.approx(new_numbers, rel=0.2), f"{name}: {fix}"


def fixed(outputs: list[dict[str, Any]]) -> tuple[list[Any], list[float]]:
    """Return what the same code shows everywhere, and the numbers that are rounded."""
    shown: list[Any] = []
    for output in outputs:
        # A plot's bytes depend on matplotlib's version: test_coverage measures what is stored.
        data = {kind: text for kind, text in output.get("data", {}).items() if "image" not in kind}
        kinds = sorted(output.get("data", {}))
        shown.append((output["output_type"], kinds, data, output.get("text")))
    text = json.dumps(shown, sort_keys=True)
    return json.loads(ROUNDED.sub("#", text)), [float(number) for number in ROUNDED.findall(text)]


def printed(outputs: list[dict[str, Any]]) -> list[str]:
    text = "".join(one["text"] for one in outputs if one["output_type"] == "stream")
    return text.splitlines()


def table(outputs: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the one table that a cell shows."""
    (text,) = (one["data"]["text/markdown"] for one in outputs if "data" in one)
    head, _, *rows = ([c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines())
    return head, rows


def areas_of(png: bytes, count: int) -> list[int]:
    """Return how many pixels of a plot have each of matplotlib's first colours."""
    image = matplotlib.image.imread(io.BytesIO(png))[:, :, :3]
    colours = (matplotlib.colors.to_rgb(f"C{number}") for number in range(count))
    return [int((abs(image - colour).max(axis=2) < 0.02).sum()) for colour in colours]


def qola(*arguments: str | Path) -> str:
    """Return what a command says."""
    command = [sys.executable, "-m", "qola", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def reported(directory: Path) -> list[dict[str, Any]]:
    """Return the kernels that `qola report` finds in the libraries."""
    built = built_by(PROGRAM)
    plan = built["libmha_fwd"].repository / "plan.json"
    libraries = [one.library for one in built.values()]
    qola("report", *libraries, "--plan", plan, "--output", directory / "report.html")
    found: list[dict[str, Any]] = json.loads((directory / "report.json").read_text("utf-8"))[
        "kernels"
    ]
    return found


def test_kernel(tmp_path: Path) -> None:
    """Prevents: a notebook with other registers, spills or LDS than `qola report` tells."""
    shown = executed("kernel")
    kernels = reported(tmp_path)
    (name,) = printed(shown["problem"])
    (taken,) = (one for one in kernels if (one["name"], one["arch"]) == (name, "gfx950"))
    figures = dict(table(shown["taken"])[1])
    assert figures == {figure: str(taken[figure]) for figure in figures}
    assert {"vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "lds", "waves"} < {*figures}

    (line,) = printed(shown["fewer"])
    waves, registers, fewer = map(int, re.findall(r"\d+", line))
    # What 512 registers, given out in eights, leave for each of so many waves.
    assert (taken["limit"], waves) == ("registers", taken["waves"] + 1)
    assert registers == 512 // waves // 8 * 8 == taken["vgprs"] - fewer

    head, rows = table(shown["others"])
    of = Counter((one["direction"], one["role"], one["arch"]) for one in kernels)
    assert {tuple(row[:3]): int(row[3]) for row in rows} == of
    for column, figure in {"VGPRs": "vgprs", "SGPRs": "sgprs", "LDS": "lds"}.items():
        most = max(one[figure] for one in kernels)
        assert max(int(row[head.index(column)]) for row in rows) == most

    instructions, *verdicts = printed(shown["run"])
    assert re.fullmatch(r"\d{3,} instructions of waves", instructions)
    assert [verdict.partition(":")[0] for verdict in verdicts] == ["lse", "o"]
    largest, error = map(float, re.findall(r"\d+\.\d+(?:e-\d+)?", printed(shown["error"])[0]))
    assert 0 < error < 2.0**-10 * largest


def test_coverage(tmp_path: Path) -> None:
    """Prevents: a notebook whose table or plot leaves out kernels that `qola list` has."""
    shown = executed("coverage")
    mine = tmp_path / "mine.toml"
    readme = (ROOT / "README.md").read_text("utf-8")
    mine.write_text(re.findall(r"^```toml\n(.*?)^```$", readme, re.M | re.S)[0], "utf-8")
    quickstart = ROOT / "manifests/quickstart.toml"
    first, second = ({*qola("list", file).split()} for file in (quickstart, mine))
    parts = dict(table(shown["common"])[1])
    assert parts == {
        "quickstart alone": str(len(first - second)),
        "both": str(len(first & second)),
        "mine alone": str(len(second - first)),
    }
    assert f"{parts['both']} of those {len(second)} kernels" in readme

    head, rows = table(shown["domain"])
    assert head[-2:] == ["quickstart", "mine"]
    assert [sum(int(row[column]) for row in rows) for column in (-2, -1)] == [
        len(first),
        len(second),
    ]
    group = [row for row in rows if row[head.index("mode")] == "group"]
    for column, manifest in ((-2, quickstart), (-1, mine)):
        found = qola("list", manifest, "mode=group").split()
        assert sum(int(row[column]) for row in group) == len(found) > 0

    for outputs in (shown["plot"], outputs_of(stored("coverage"))["plot"]):
        (plot,) = (one["data"]["image/png"] for one in outputs if "data" in one)
        areas = areas_of(base64.b64decode(plot), len(parts))
        # The same area for each kernel; what the legend has of a colour is small beside it.
        each = [area / int(number) for area, number in zip(areas, parts.values(), strict=True)]
        assert min(each) > 100
        assert max(each) < 1.1 * min(each)
