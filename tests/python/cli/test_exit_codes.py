"""docs/reference/exit-codes.md: it says what the program does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qola.errors import ExitCode, QolaError
from tools.docs.exit_codes import update


@pytest.fixture(scope="module")
def page(repo_root: Path) -> str:
    return (repo_root / "docs/reference/exit-codes.md").read_text("utf-8")


def test_the_table_is_up_to_date(page: str) -> None:
    """Prevents: an exit code, or a command with it, added or changed without its documentation."""
    assert update(page) == page, "run: ./bazelw run //tools/docs:update"


def test_the_table_shows_a_change(page: str) -> None:
    """Prevents: an update that finds its place nowhere, and a test that passes all the same."""
    row = "| 9 | no source has the prebuilt bundle | `fetch`, `publish` |\n"
    assert row in page
    assert update(page.replace(row, "")) == page
    with pytest.raises(ValueError, match="0 times"):
        update(page.replace("<!-- exit codes -->", ""))


def classes(base: type[QolaError]) -> Iterator[type[QolaError]]:
    for cls in base.__subclasses__():
        yield cls
        yield from classes(cls)


def test_errors_refer_to_the_table() -> None:
    """Prevents: an error class with a number of its own, which no help text knows."""
    found = {cls for cls in classes(QolaError) if cls.__module__.startswith("qola.")}
    assert len(found) > 10
    assert [cls for cls in found if not isinstance(cls.exit_code, ExitCode)] == []


def test_standard_output_on_a_full_disk(repo_root: Path) -> None:
    """Prevents: a traceback, or success, where what a command prints goes to a full disk."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "qola", "init", "-"]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(repo_root), *sys.path])}
        run = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environ, check=False
        )
    assert run.returncode == ExitCode.ERROR, run.stderr
    assert "error: standard output" in run.stderr
    assert "No space left on device" in run.stderr
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
