"""Commits by tag, branch and first digits, of a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.checkout.commits import resolve_commit
from qola.errors import AiterError
from tests.python.checkout.trees import git


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, list[str]]:
    """A repository of two commits, with a branch and two kinds of tags at the first."""
    git(tmp_path, "init", "-q", "-b", "main", "r")
    root = tmp_path / "r"
    commits = []
    for text in ("one", "two"):
        (root / "file").write_text(text)
        git(root, "add", "file")
        git(root, "commit", "-qm", text)
        commits.append(git(root, "rev-parse", "HEAD"))
    git(root, "tag", "light", commits[0])
    git(root, "tag", "-a", "-m", "annotated", "heavy", commits[0])
    git(root, "branch", "old", commits[0])
    return str(root), commits


@pytest.mark.parametrize("name", ["light", "heavy", "old"])
def test_names(remote: tuple[str, list[str]], name: str) -> None:
    """Prevents: the id of an annotated tag, which is not a commit's, or another branch's."""
    url, commits = remote
    assert resolve_commit(url, name) == commits[0]


def test_first_digits(remote: tuple[str, list[str]]) -> None:
    """Prevents: QoLA's manifests, whose commits have nine digits, refused."""
    url, commits = remote
    said: list[str] = []
    assert resolve_commit(url, commits[0][:9], progress=said.append) == commits[0]
    assert commits[0][:9] in said[0]


def test_full_id_needs_no_remote() -> None:
    """Prevents: network traffic for what is pinned already."""
    assert resolve_commit("/no/such/remote", "c" * 40) == "c" * 40


@pytest.mark.parametrize("name", ["no-such-tag", "0123456789"])
def test_unknown(remote: tuple[str, list[str]], name: str) -> None:
    """Prevents: a traceback, or another commit, for a name that is not there."""
    with pytest.raises(AiterError) as caught:
        resolve_commit(remote[0], name)
    assert name in caught.value.findings[0].place


def test_no_remote(tmp_path: Path) -> None:
    """Prevents: git's words lost."""
    with pytest.raises(AiterError) as caught:
        resolve_commit(str(tmp_path / "absent"), "main")
    assert "absent" in caught.value.findings[0].found
