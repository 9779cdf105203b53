"""Resolution of tags, branches and abbreviated ids to commits, with real repositories."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from qola.fetch.git import fetch_commit, read_checkout, read_head, resolve_commit
from qola_base.errors import AiterError
from tests.setup.cache_rule import give_away
from tests.support.folders import git


@pytest.fixture
def remote(tmp_path: Path) -> tuple[str, str]:
    """A repository of two commits; the first has a branch and two kinds of tags."""
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    git(tmp_path, "tag", "light")
    git(tmp_path, "tag", "-a", "-m", "annotated", "heavy")
    git(tmp_path, "branch", "old")
    git(tmp_path, "commit", "-qm", "two", "--allow-empty")
    return str(tmp_path), git(tmp_path, "rev-parse", "old")


@pytest.mark.parametrize("name", ["light", "heavy", "old"])
def test_tags_and_branches(remote: tuple[str, str], name: str) -> None:
    """Prevents: qola returns the id of an annotated tag, or the commit of another branch."""
    url, commit = remote
    assert resolve_commit(url, name) == commit


def test_abbreviated_id(remote: tuple[str, str], logged: list[str]) -> None:
    """Prevents: qola rejects QoLA's manifests, whose commits have nine digits."""
    url, commit = remote
    assert resolve_commit(url, commit[:9]) == commit
    assert commit[:9] in logged[0]


def test_full_id_needs_no_remote() -> None:
    """Prevents: network access for a full commit id."""
    assert resolve_commit("/no/such/remote", "c" * 40) == "c" * 40


@pytest.mark.parametrize("name", ["no-such-tag", "0123456789"])
def test_unknown_name(remote: tuple[str, str], name: str) -> None:
    """Prevents: an unknown name causes a traceback or resolves to another commit."""
    with pytest.raises(AiterError, match=f"error: .*{name}"):
        resolve_commit(remote[0], name)


def test_missing_remote(tmp_path: Path) -> None:
    """Prevents: the error omits the message of git."""
    with pytest.raises(AiterError, match=r"found .*absent"):
        resolve_commit(str(tmp_path / "absent"), "main")


@pytest.mark.parametrize(
    "remote", ["fd::1", "ext::touch MARK", "--upload-pack=touch MARK", "git://host/x", "::x", ""]
)
def test_unsafe_remotes_are_rejected(tmp_path: Path, remote: str) -> None:
    """Prevents: a remote that names a git helper or option runs a command or blocks."""
    url = remote.replace("MARK", str(tmp_path / "mark"))
    with pytest.raises(AiterError, match="https://"):
        resolve_commit(url, "main")
    with pytest.raises(AiterError, match="https://"):
        fetch_commit(url, "a" * 40, tmp_path, "here")
    assert not list(tmp_path.iterdir())


def test_submodule_url_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a fetched .gitmodules runs commands if the user's git allows ext:: URLs."""
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


def test_remote_that_does_not_respond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a build waits forever for a silent server, or a git process remains."""
    monkeypatch.setenv("QOLA_GIT_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        started = time.monotonic()
        with pytest.raises(AiterError, match="no end after 1 s; QOLA_GIT_TIMEOUT"):
            fetch_commit(remote, "a" * 40, tmp_path, "here")
        with pytest.raises(AiterError, match="no end after 1 s"):
            resolve_commit(remote, "main")
        assert time.monotonic() - started < 15
        # A killed process is listed until init has reaped it.
        command = ["ps", "-eo", "args"]
        while remote in subprocess.check_output(command, text=True):
            assert time.monotonic() - started < 25, "git is left behind"
    monkeypatch.setenv("QOLA_GIT_TIMEOUT", "long")
    with pytest.raises(AiterError, match="seconds, from 1"):
        resolve_commit(remote, "main")


def test_repository_of_another_user(
    remote: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents: for "dubious ownership", the error only advises to check the commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    url, commit = remote
    for path in (Path(url), Path(url, ".git")):
        give_away(path)
    with pytest.raises(AiterError, match="dubious ownership") as caught:
        fetch_commit(url, commit, tmp_path_factory.mktemp("x"), "here")
    command = f"git config --global --add safe.directory {url}"
    assert caught.value.findings[0].fix.startswith(command)


def test_a_checkout_runs_no_command_of_its_configuration(tmp_path: Path) -> None:
    """Prevents: qola runs what another user wrote into a checkout's configuration.

    Git fetches the missing objects of a partial clone by the command that the clone names.
    """
    source, clone, planted = tmp_path / "source", tmp_path / "clone", tmp_path / "planted"
    source.mkdir()
    git(source, "init", "-q")
    (source / "file").write_text("text")
    git(source, "add", "file")
    git(source, "commit", "-qm", "one")
    git(source, "tag", "-a", "-m", "annotated", "heavy")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=tree:0", source.as_uri(), "clone")
    git(clone, "config", "remote.origin.uploadpack", f"touch {planted}; false")
    with pytest.raises(AiterError):
        read_checkout(clone, "ls-tree", "HEAD", "file")
    assert read_head(clone).commit == git(source, "rev-parse", "HEAD")
    assert not planted.exists()


def test_a_checkout_with_a_line_break_in_its_name(tmp_path: Path) -> None:
    """Prevents: a traceback for a directory that git names on two lines."""
    root = tmp_path / "two\nlines"
    root.mkdir()
    git(root, "init", "-q")
    git(root, "commit", "-qm", "one", "--allow-empty")
    head = read_head(root)
    assert head.commit == git(root, "rev-parse", "HEAD")
    assert head.git_dir == str(root / ".git")
