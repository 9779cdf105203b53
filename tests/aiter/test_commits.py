"""Commits by tag, branch and first digits, of a real repository."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from qola.errors import AiterError
from qola.fetch.git import fetch_commit, resolve_commit
from tests.setup.cache_rule import give_away
from tests.support.folders import git


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


def test_first_digits(remote: tuple[str, str], logged: list[str]) -> None:
    """Prevents: QoLA's manifests, whose commits have nine digits, refused."""
    url, commit = remote
    assert resolve_commit(url, commit[:9]) == commit
    assert commit[:9] in logged[0]


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


@pytest.mark.parametrize(
    "remote", ["fd::1", "ext::touch MARK", "--upload-pack=touch MARK", "git://host/x", "::x", ""]
)
def test_what_git_must_not_be_given(tmp_path: Path, remote: str) -> None:
    """Prevents: a hang, or a command run, for a remote that names a helper or an option of git."""
    named = remote.replace("MARK", str(tmp_path / "mark"))
    with pytest.raises(AiterError, match="https://"):
        resolve_commit(named, "main")
    with pytest.raises(AiterError, match="https://"):
        fetch_commit(named, "a" * 40, tmp_path, "here")
    assert not list(tmp_path.iterdir())


def test_a_submodule_that_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: commands of a fetched .gitmodules run, where a user's git takes ext:: from all."""
    remote, fetched = tmp_path / "remote", tmp_path / "fetched"
    remote.mkdir()
    fetched.mkdir()
    git(remote, "init", "-q")
    url = f"ext::touch {tmp_path}/mark"
    text = f'[submodule "ck"]\n\tpath = ck\n\turl = {url}\n'
    (remote / ".gitmodules").write_text(text)
    git(remote, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},ck")
    git(remote, "add", ".gitmodules")
    git(remote, "commit", "-qm", "one")
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.ext.allow"}
    for key, value in {**settings, "GIT_CONFIG_VALUE_0": "always"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(AiterError, match="transport 'ext' not allowed"):
        fetch_commit(str(remote), git(remote, "rev-parse", "HEAD"), fetched, "here")
    assert not (tmp_path / "mark").exists()


def test_a_remote_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a build that waits for ever for a server that is silent; git left behind."""
    monkeypatch.setenv("QOLA_GIT_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        started = time.monotonic()
        with pytest.raises(AiterError, match="no end after 1 s; QOLA_GIT_TIMEOUT"):
            fetch_commit(remote, "a" * 40, tmp_path, "here")
        with pytest.raises(AiterError, match="no end after 1 s"):
            resolve_commit(remote, "main")
        assert time.monotonic() - started < 15
        # What was killed is there until init has reaped it.
        words = ["ps", "-eo", "args"]
        while remote in subprocess.check_output(words, text=True):
            assert time.monotonic() - started < 25, "git is left behind"
    monkeypatch.setenv("QOLA_GIT_TIMEOUT", "long")
    with pytest.raises(AiterError, match="seconds, from 1"):
        resolve_commit(remote, "main")


def test_a_repository_of_another_user(
    remote: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: "dubious ownership" with advice to check the commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    url, commit = remote
    for path in (Path(url), Path(url, ".git")):
        give_away(path)
    with pytest.raises(AiterError, match="dubious ownership") as caught:
        fetch_commit(url, commit, tmp_path_factory.mktemp("x"), "here")
    command = f"git config --global --add safe.directory {url}"
    assert caught.value.findings[0].fix.startswith(command)
