"""The pinned wheel: what is said where an index does not have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.errors import AiterError
from qola.fetch.wheel import pip_download, read_pin


@pytest.fixture
def empty_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip whose index has nothing."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


@pytest.mark.usefixtures("empty_index")
def test_a_wheel_that_is_gone_has_a_commit(tmp_path: Path, repo_root: Path) -> None:
    """Prevents: a pre-release that is taken off its index, and no way to its sources."""
    pin, commit = read_pin(repo_root)
    assert len(commit) == 40
    assert sorted(pin) == ["package", "sha256", "version"]
    with pytest.raises(AiterError) as raised:
        pip_download(pin["package"], pin["version"], tmp_path)
    text = str(raised.value)
    assert f'commit = "{commit}"' in text
    assert f"--aiter-commit {commit}" in text
    with pytest.raises(AiterError) as raised:
        pip_download("qola-tiny", pin["version"], tmp_path)
    assert "qola.aiter_git" not in str(raised.value)
