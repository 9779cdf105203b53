"""Fetching of the pinned wheel: digest check, and errors that name another source."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.fetch.wheel import main, pip_download, read_pin
from qola_base.errors import AiterError
from qola_base.files import sha256_of
from tests.aiter.trees import use_index, write_wheel


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_index(monkeypatch, tmp_path / "index")
    return write_wheel(tmp_path / "index", "qola-tiny", "1.0")


def fetch(output: Path, version: str, sha256: str) -> int:
    options = ["--package", "qola-tiny", "--version", version, "--sha256", sha256]
    return main([*options, "--place", "MODULE.bazel: qola.aiter_wheel()", "--output", str(output)])


def test_pinned_wheel_is_fetched(wheel: Path, tmp_path: Path) -> None:
    """Prevents: the fetched file differs from the pinned wheel."""
    assert fetch(tmp_path / "w.zip", "1.0", sha256_of(wheel).upper()) == 0
    assert (tmp_path / "w.zip").read_bytes() == wheel.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "w.zip"]


def test_wheel_with_wrong_digest_is_rejected(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a build uses a file with another digest than the pinned wheel."""
    assert fetch(tmp_path / "w.zip", "1.0", "0" * 64) == AiterError.exit_code
    error = capsys.readouterr().err
    assert "error: MODULE.bazel: qola.aiter_wheel()" in error
    assert f"qola_tiny-1.0-py3-none-any.whl with sha256 {sha256_of(wheel)}" in error
    assert f"expected  sha256 {'0' * 64}" in error
    assert "put the new digest at that place" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


@pytest.mark.usefixtures("wheel")
def test_missing_version_is_reported_with_output_of_pip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: an error omits pip's message, or the command that shows pip's index."""
    assert fetch(tmp_path / "w.zip", "2.0", "0" * 64) == AiterError.exit_code
    error = capsys.readouterr().err
    assert "error: qola-tiny==2.0" in error
    assert "No matching distribution found for qola-tiny==2.0" in error
    assert "python3 -m pip config debug" in error


@pytest.mark.usefixtures("wheel")
def test_error_for_a_removed_wheel_names_its_commit(tmp_path: Path, repo_root: Path) -> None:
    """Prevents: after the index removes a pre-release, the error does not name its sources."""
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
