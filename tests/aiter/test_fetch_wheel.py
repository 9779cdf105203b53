"""The pinned wheel: fetched, refused if it is another, and missed with a way to its sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.errors import AiterError
from qola.fetch.wheel import main, pip_download, read_pin
from qola.files import sha256_of
from tests.aiter.trees import use_index, write_wheel


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_index(monkeypatch, tmp_path / "index")
    return write_wheel(tmp_path / "index", "qola-tiny", "1.0")


def fetch(output: Path, version: str, sha256: str) -> int:
    words = ["--package", "qola-tiny", "--version", version, "--sha256", sha256]
    return main([*words, "--place", "MODULE.bazel: qola.aiter_wheel()", "--output", str(output)])


def test_a_pinned_wheel_is_fetched(wheel: Path, tmp_path: Path) -> None:
    """Prevents: a fetch that leaves something else than the pinned file."""
    assert fetch(tmp_path / "w.zip", "1.0", sha256_of(wheel).upper()) == 0
    assert (tmp_path / "w.zip").read_bytes() == wheel.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "w.zip"]


def test_a_tampered_wheel_is_refused(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: another file than the pinned one getting into a build."""
    assert fetch(tmp_path / "w.zip", "1.0", "0" * 64) == AiterError.exit_code
    error = capsys.readouterr().err
    assert "error: MODULE.bazel: qola.aiter_wheel()" in error
    assert f"qola_tiny-1.0-py3-none-any.whl with sha256 {sha256_of(wheel)}" in error
    assert f"expected  sha256 {'0' * 64}" in error
    assert "put the new digest at that place" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


@pytest.mark.usefixtures("wheel")
def test_a_version_the_index_lacks_is_reported_in_pips_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a failed download that does not say why, or which index was asked."""
    assert fetch(tmp_path / "w.zip", "2.0", "0" * 64) == AiterError.exit_code
    error = capsys.readouterr().err
    assert "error: qola-tiny==2.0" in error
    assert "No matching distribution found for qola-tiny==2.0" in error
    assert "python3 -m pip config debug" in error


@pytest.mark.usefixtures("wheel")
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
