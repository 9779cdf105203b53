"""The cache directory: its location, and its protection against other users."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from qola_base.cache import (
    cache_directory,
    distrust,
    foreign,
    locked,
    own_directory,
    refuse_foreign,
)
from qola_base.errors import QolaError
from tests.setup.cache_rule import cache_rule, give_away


def test_location(tmp_path: Path) -> None:
    """Prevents: a cache in the current directory, or in another directory than bazelw's."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for environ, expected in cache_rule(tmp_path, home):
        assert cache_directory(environ) == expected, environ


def test_user_without_passwd_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a traceback, or a cache in the current directory, for a container's user."""

    def unknown(user: int) -> None:
        raise KeyError(f"uid not found: {user}")

    monkeypatch.setenv("HOME", "relative")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_directory({}) == Path("/.cache/qola")


def test_control_characters_in_paths(tmp_path: Path) -> None:
    """Prevents: a directory name that adds an option to Bazel's options file."""
    with pytest.raises(QolaError, match="a name with control characters"):
        own_directory(tmp_path / "a\ncommon --config=b")
    own_directory(tmp_path / "b \udcff")


def test_directories_are_private(tmp_path: Path) -> None:
    """Prevents: a directory that a permissive umask opens to other users."""
    previous = os.umask(0)
    try:
        own_directory(tmp_path / "a/b")
    finally:
        os.umask(previous)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")]
    assert modes == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o777, 0o722, 0o720, 0o1777])
def test_writable_directory_is_refused(tmp_path: Path, mode: int) -> None:
    """Prevents: a workspace that another user filled, whose rules Bazel runs."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(mode)
    with pytest.raises(QolaError, match=rf"{tmp_path}/w\n.*others \(mode {mode:04o}, owner"):
        locked(tmp_path / "w", "build").__enter__()
    assert list((tmp_path / "w").iterdir()) == []


def test_parent_directories(tmp_path: Path) -> None:
    """Prevents: a cache that other users can rename, through a link or directly."""
    own_directory(tmp_path / "all/own/deep")
    (tmp_path / "link").symlink_to(tmp_path / "all/own")
    for mode, refused in ((0o777, True), (0o1777, False), (0o775, False)):
        (tmp_path / "all").chmod(mode)
        for path in (tmp_path / "all/own/deep", tmp_path / "link/deep", tmp_path / "link"):
            assert (distrust(path) is not None) == refused, (mode, path)


def test_link_to_itself(tmp_path: Path) -> None:
    """Prevents: a traceback, or "File exists", for a cache directory that links to itself."""
    (tmp_path / "qola").symlink_to("qola")
    for refuse in (own_directory, refuse_foreign):
        for path in (tmp_path / "qola", tmp_path / "qola/deep"):
            with pytest.raises(QolaError, match=rf"{tmp_path}/qola\n.* leads to itself") as caught:
                refuse(path)
            assert caught.value.findings[0].fix.startswith(f"rm {tmp_path}/qola;")
    found = foreign(tmp_path / "qola")
    assert found is not None
    assert "itself" in found.found


@pytest.mark.parametrize("place", ["own", "own/deep", "link"])
def test_foreign_owner_is_distrusted(tmp_path: Path, place: str) -> None:
    """Prevents: a directory, a parent, or a link in the path that another user created."""
    own_directory(tmp_path / "own/deep")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    give_away(tmp_path / place)
    found = distrust(tmp_path / "link/deep")
    assert found is not None
    assert found[0] in (tmp_path / place, tmp_path / place.replace("own", "link"))
    assert found[1].startswith("another user's (mode ")
