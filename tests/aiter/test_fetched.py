"""Which trees are as they were fetched, and what decides the answers that are cached for them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qola.fetch import fetched
from qola.fetch.fetched import fetched_digest, main, record_digest, tree_answers
from tests.support.folders import write

HEADER, CODE, SCRIPT = "csrc/include/mha_fwd.h", "hsa/gfx950/fmha.co", "hsa/script.py"


class Fetched:
    """A tree that was just fetched, and a question about it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = write(root / "tree", {HEADER: "int a;\n", CODE: "code\n", SCRIPT: "1\n"})
        record_digest(self.tree)
        self.runs = 0

    def ask(self, tree: Path | None = None) -> int:
        """Return how often the question was answered for this."""
        before = self.runs
        cache = {"QOLA_CACHE_HOME": str(self.root / "cache")}
        with tree_answers(tree or self.tree, cache) as answers:
            answers.find("q", Any, self._make)
        return self.runs - before

    def _make(self) -> int:
        self.runs += 1
        return self.runs


@pytest.fixture
def fetched_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetched:
    write(tmp_path / "copy", {"qola/plan/planner.py": ""})
    monkeypatch.setattr(fetched, "_PACKAGE", tmp_path / "copy/qola")
    return Fetched(tmp_path)


def test_answers_about_a_fetched_tree_are_cached(fetched_tree: Fetched) -> None:
    """Prevents: plans of the pinned tree that take seconds each time."""
    assert [fetched_tree.ask(), fetched_tree.ask()] == [1, 0]


def linked(file: Path, target: Path) -> None:
    file.rename(target)
    file.symlink_to(target)


def to_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


EDITS: dict[str, Callable[[Path], object]] = {
    "a header": lambda tree: (tree / HEADER).write_text("int b;\n"),
    "a code object": lambda tree: (tree / CODE).write_text("edoc\n"),
    "a generator": lambda tree: (tree / SCRIPT).write_text("2\n"),
    "a new file": lambda tree: write(tree, {"csrc/include/ck.hpp": ""}),
    "an empty directory": lambda tree: (tree / "csrc/empty").mkdir(),
    "a file that is gone": lambda tree: (tree / CODE).unlink(),
    "another name": lambda tree: (tree / "hsa/gfx950").rename(tree / "hsa/gfx942"),
    "a program": lambda tree: (tree / SCRIPT).chmod(0o755),
    "a link in a file's place": lambda tree: linked(tree / SCRIPT, tree.parent / "s.py"),
    "a link to a directory": lambda tree: (tree / "csrc/more").symlink_to(tree.parent),
    "a link to nothing": lambda tree: (tree / "csrc/more").symlink_to(tree / "none"),
    "a FIFO": lambda tree: os.mkfifo(tree / "csrc/fifo"),
    "no digest": lambda tree: (tree / fetched.FETCHED).unlink(),
    "another digest": lambda tree: (tree / fetched.FETCHED).write_text("0" * 64),
    "a long digest": lambda tree: (tree / fetched.FETCHED).write_text("0" * 9999),
    "a FIFO for a digest": lambda tree: to_fifo(tree / fetched.FETCHED),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_tree_is_planned_each_time(fetched_tree: Fetched, edit: str) -> None:
    """Prevents: a stale plan: an edited generator may depend on anything."""
    fetched_tree.ask()
    EDITS[edit](fetched_tree.tree)
    assert fetched_digest(fetched_tree.tree) == ""
    assert [fetched_tree.ask(), fetched_tree.ask()] == [1, 1]


def test_an_edit_that_is_taken_back(fetched_tree: Fetched) -> None:
    """Prevents: a fetch that is needed again after a trial."""
    fetched_tree.ask()
    (fetched_tree.tree / HEADER).write_text("int b;\n")
    fetched_tree.ask()
    (fetched_tree.tree / HEADER).write_text("int a;\n")
    assert fetched_tree.ask() == 0


OTHERS: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "qola": lambda root, _: write(root, {"copy/qola/later.py": ""}),
    "Python": lambda _, patch: patch.setattr(sys, "version", "3.99.0 (main)"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_qola_or_python_has_other_answers(
    fetched_tree: Fetched, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Prevents: the plan of an older qola, or what another Python's set or hash order made."""
    fetched_tree.ask()
    OTHERS[other](fetched_tree.root, monkeypatch)
    assert [fetched_tree.ask(), fetched_tree.ask()] == [1, 0]


def test_another_tree_that_looks_alike_has_other_answers(fetched_tree: Fetched) -> None:
    """Prevents: warnings that name files of another tree."""
    fetched_tree.ask()
    twin = fetched_tree.root / "twin"
    shutil.copytree(fetched_tree.tree, twin)
    assert [fetched_tree.ask(twin), fetched_tree.ask(twin)] == [1, 0]


def test_bazel_writes_files_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a tree of Bazel's that never counts as fetched; a rule that fails silently."""
    tree = write(tmp_path / "tree", {HEADER: "", "AITER.json": "{}", "BUILD.bazel": ""})
    assert main(["--tree", str(tree)]) == 0
    write(tree, {"REPO.bazel": ""})
    assert fetched_digest(tree)
    assert main(["--tree", str(tmp_path / "absent")]) != 0
    assert "absent" in capsys.readouterr().err
