"""Commits by tag, branch and first digits, of a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.checkout.commits import resolve_commit
from qola.errors import AiterError
from tests.python.folders import git


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """A repository of two commits, with a branch and two kinds of tags at the first."""
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    git(tmp_path, "tag", "light")
    git(tmp_path, "tag", "-a", "-m", "annotated", "heavy")
    git(tmp_path, "branch", "old")
    git(tmp_path, "commit", "-qm", "two", "--allow-empty")
    return str(tmp_path), git(tmp_path, "rev-parse", "old")


@pytest.mark.parametrize("name", ["light", "heavy", "old"])
def test_names(remote: tuple[str, str], name: str) -> None:
    """Prevents: the id of an annotated tag, which is not a commit's, or another branch's."""
    url, commit = remote
    assert resolve_commit(url, name) == commit


def test_first_digits(remote: tuple[str, str]) -> None:
    """Prevents: QoLA's manifests, whose commits have nine digits, refused."""
    url, commit = remote
    said: list[str] = []
    assert resolve_commit(url, commit[:9], progress=said.append) == commit
    assert commit[:9] in said[0]


def test_full_id_needs_no_remote() -> None:
    """Prevents: network traffic for what is pinned already."""
    assert resolve_commit("/no/such/remote", "c" * 40) == "c" * 40


@pytest.mark.parametrize("name", ["no-such-tag", "0123456789"])
def test_unknown(remote: tuple[str, str], name: str) -> None:
    """Prevents: a traceback, or another commit, for a name that is not there."""
    with pytest.raises(AiterError, match=f"error: .*{name}"):
        resolve_commit(remote[0], name)


def test_no_remote(tmp_path: Path) -> None:
    """Prevents: git's words lost."""
    with pytest.raises(AiterError, match=r"found .*absent"):
        resolve_commit(str(tmp_path / "absent"), "main")
