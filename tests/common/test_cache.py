"""The cache directory: where it is, and that nobody else can write to it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from qola.cache import cache_directory, distrust, foreign, locked, own_directory, refuse_foreign
from qola.errors import QolaError
from tests.setup.cache_rule import cache_rule, give_away


def test_one_rule(tmp_path: Path) -> None:
    """Prevents: a cache in the current directory, or elsewhere than bazelw has it."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for environ, expected in cache_rule(tmp_path, home):
        assert cache_directory(environ) == expected, environ


def test_a_user_whom_passwd_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a traceback, or a cache in the current directory, for a container's user."""

    def unknown(user: int) -> None:
        raise KeyError(f"uid not found: {user}")

    monkeypatch.setenv("HOME", "relative")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_directory({}) == Path("/.cache/qola")


def test_more_than_a_word(tmp_path: Path) -> None:
    """Prevents: an option of Bazel's by the name of a directory, in a file of options."""
    with pytest.raises(QolaError, match="a name with control characters"):
        own_directory(tmp_path / "a\ncommon --config=b")
    own_directory(tmp_path / "b \udcff")


def test_made_for_one_user(tmp_path: Path) -> None:
    """Prevents: a directory that a generous umask opens to others."""
    previous = os.umask(0)
    try:
        own_directory(tmp_path / "a/b")
    finally:
        os.umask(previous)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")]
    assert modes == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o777, 0o722, 0o720, 0o1777])
def test_written_by_others(tmp_path: Path, mode: int) -> None:
    """Prevents: a workspace that another user filled, whose rules Bazel would run."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w").chmod(mode)
    with pytest.raises(QolaError, match=rf"{tmp_path}/w\n.*others \(mode {mode:04o}, owner"):
        locked(tmp_path / "w", "build").__enter__()
    assert list((tmp_path / "w").iterdir()) == []


def test_what_is_above(tmp_path: Path) -> None:
    """Prevents: a cache that others can rename away, reached by a link or not."""
    own_directory(tmp_path / "all/own/deep")
    (tmp_path / "link").symlink_to(tmp_path / "all/own")
    for mode, refused in ((0o777, True), (0o1777, False), (0o775, False)):
        (tmp_path / "all").chmod(mode)
        for path in (tmp_path / "all/own/deep", tmp_path / "link/deep", tmp_path / "link"):
            assert (distrust(path) is not None) == refused, (mode, path)


def test_a_link_to_itself(tmp_path: Path) -> None:
    """Prevents: a traceback of Python's, or "File exists", for a cache that leads nowhere."""
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
def test_owned_by_another(tmp_path: Path, place: str) -> None:
    """Prevents: a directory, one above it, or a link on the way to it that another user made."""
    own_directory(tmp_path / "own/deep")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    give_away(tmp_path / place)
    found = distrust(tmp_path / "link/deep")
    assert found is not None
    assert found[0] in (tmp_path / place, tmp_path / place.replace("own", "link"))
    assert found[1].startswith("another user's (mode ")
