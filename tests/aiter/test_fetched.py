"""Detection of unmodified fetched trees, and the cache of answers about these trees."""

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


class FetchedTree:
    """A fetched tree, and a cached question about it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = write(root / "tree", {HEADER: "int a;\n", CODE: "code\n", SCRIPT: "1\n"})
        record_digest(self.tree)
        self.runs = 0

    def count_runs(self, tree: Path | None = None) -> int:
        """Return how often this call computed the answer (0 if cached)."""
        before = self.runs
        cache = {"QOLA_CACHE_HOME": str(self.root / "cache")}
        with tree_answers(tree or self.tree, cache) as answers:
            answers.find("q", Any, self._answer)
        return self.runs - before

    def _answer(self) -> int:
        self.runs += 1
        return self.runs


@pytest.fixture
def fetched_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchedTree:
    write(tmp_path / "copy", {"qola/plan/planner.py": "", "qola_base/files.py": ""})
    monkeypatch.setattr(fetched, "ROOT", tmp_path / "copy")
    return FetchedTree(tmp_path)


def test_answers_about_a_fetched_tree_are_cached(fetched_tree: FetchedTree) -> None:
    """Prevents: each plan of the pinned tree takes seconds."""
    assert [fetched_tree.count_runs(), fetched_tree.count_runs()] == [1, 0]


def to_symlink(file: Path, target: Path) -> None:
    file.rename(target)
    file.symlink_to(target)


def replace_by_fifo(file: Path) -> None:
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
    "a link in a file's place": lambda tree: to_symlink(tree / SCRIPT, tree.parent / "s.py"),
    "a link to a directory": lambda tree: (tree / "csrc/more").symlink_to(tree.parent),
    "a link to nothing": lambda tree: (tree / "csrc/more").symlink_to(tree / "none"),
    "a FIFO": lambda tree: os.mkfifo(tree / "csrc/fifo"),
    "no digest": lambda tree: (tree / fetched.FETCHED).unlink(),
    "another digest": lambda tree: (tree / fetched.FETCHED).write_text("0" * 64),
    "a long digest": lambda tree: (tree / fetched.FETCHED).write_text("0" * 9999),
    "a FIFO for a digest": lambda tree: replace_by_fifo(tree / fetched.FETCHED),
}


@pytest.mark.parametrize("edit", EDITS)
def test_answers_about_an_edited_tree_are_not_cached(fetched_tree: FetchedTree, edit: str) -> None:
    """Prevents: a stale plan after an edit; an edited generator may depend on any file."""
    fetched_tree.count_runs()
    EDITS[edit](fetched_tree.tree)
    assert fetched_digest(fetched_tree.tree) == ""
    assert [fetched_tree.count_runs(), fetched_tree.count_runs()] == [1, 1]


def test_reverted_edit(fetched_tree: FetchedTree) -> None:
    """Prevents: a user must fetch the tree again after reverting an edit."""
    fetched_tree.count_runs()
    (fetched_tree.tree / HEADER).write_text("int b;\n")
    fetched_tree.count_runs()
    (fetched_tree.tree / HEADER).write_text("int a;\n")
    assert fetched_tree.count_runs() == 0


ENVIRONMENT_CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "qola": lambda root, _: write(root, {"copy/qola/later.py": ""}),
    "qola_base": lambda root, _: write(root, {"copy/qola_base/later.py": ""}),
    "Python": lambda _, patch: patch.setattr(sys, "version", "3.99.0 (main)"),
}


@pytest.mark.parametrize("change", ENVIRONMENT_CHANGES)
def test_cache_depends_on_qola_and_python(
    fetched_tree: FetchedTree, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Prevents: qola uses a plan of another qola version, or of a Python with another set order."""
    fetched_tree.count_runs()
    ENVIRONMENT_CHANGES[change](fetched_tree.root, monkeypatch)
    assert [fetched_tree.count_runs(), fetched_tree.count_runs()] == [1, 0]


def test_cache_depends_on_the_path_of_the_tree(fetched_tree: FetchedTree) -> None:
    """Prevents: warnings name files of another tree."""
    fetched_tree.count_runs()
    twin = fetched_tree.root / "twin"
    shutil.copytree(fetched_tree.tree, twin)
    assert [fetched_tree.count_runs(twin), fetched_tree.count_runs(twin)] == [1, 0]


def test_files_of_bazel_are_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a tree with Bazel's files never counts as fetched, or the rule fails silently."""
    tree = write(tmp_path / "tree", {HEADER: "", "AITER.json": "{}", "BUILD.bazel": ""})
    assert main(["--tree", str(tree)]) == 0
    write(tree, {"REPO.bazel": ""})
    assert fetched_digest(tree)
    assert main(["--tree", str(tmp_path / "absent")]) != 0
    assert "absent" in capsys.readouterr().err
