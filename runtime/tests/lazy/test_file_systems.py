"""Full, read-only and noexec file systems, and files of other users.

These tests run outside of the sandbox, which has neither. They skip, with the reason, if the
machine forbids mounts or chown.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.tests.lazy.lazy import FILL, FILLED, SCALE, SCALED, Answer, Toy
from tests.setup.cache_rule import give_away
from tests.support.running import run


def test_entry_of_another_user(warm: Toy) -> None:
    """Prevents: a kernel of another user is loaded."""
    give_away(warm.entry(SCALE))
    answer = warm.check_available(SCALE)
    assert "is another user's (mode 0600, owner 4321); chown 0" in answer.errors
    assert warm.entry(SCALE).stat().st_uid == 0


def test_wrong_owner_of_the_root(warm: Toy) -> None:
    """Prevents: `verify` does not report a cache of another user."""
    give_away(warm.cache)
    result = warm.check_tool(1, "verify")
    assert f"{warm.cache} is another user's (mode 0700, owner 4321)" in result.stdout


def test_cache_below_another_users_directory(warm: Toy) -> None:
    """Prevents: the owner of a parent directory can replace the cache."""
    cache = warm.path / "above/cache"
    cache.parent.mkdir()
    warm.cache.rename(cache)
    give_away(cache.parent)
    answer = warm.check_available(SCALE, QOLA_CACHE=str(cache))
    assert f"{cache.parent} is another user's (mode 0755, owner 4321)" in answer.errors
    assert "not kept" in answer.errors


def test_link_of_another_user(warm: Toy) -> None:
    """Prevents: the owner of a symbolic link to the cache can redirect it."""
    warm.cache.rename(warm.path / "real")
    warm.cache.symlink_to(warm.path / "real")
    warm.check_available(SCALE, QOLA_LAZY="never")
    give_away(warm.cache)
    answer = warm.check_unavailable(SCALE, QOLA_LAZY="never")
    assert f"{warm.cache} is another user's symbolic link (mode 0777, owner " in answer.errors


def open_to_others(path: Path) -> None:
    path.chmod(0o777)


@pytest.mark.parametrize("file", ["", "..", "include", "kernels.index", f"src/toys/{SCALE}.cpp"])
@pytest.mark.parametrize(
    ("change", "found"), [(give_away, "is another user's"), (open_to_others, "is writable by ")]
)
def test_sources_that_others_may_change(
    toy: Toy, change: Callable[[Path], None], found: str, file: str
) -> None:
    """Prevents: another user changes sources, or flags in the index."""
    path = (toy.root / file).resolve()
    change(path)
    assert f"{path} {found}" in toy.check_unavailable(SCALE).errors
    assert toy.compiles() == 0
    assert f"{path} {found}" in toy.check_tool(1, "verify").stdout
    assert f"{path} {found}" in toy.check_tool(1, "build", SCALE).stderr


def ask_with_mounted_cache(toy: Toy, options: str) -> Answer:
    """Request kernels in a process whose cache is a separately mounted file system."""
    toy.cache.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o {options} none "$QOLA_CACHE" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh"]
    command += toy.command(str(toy.row(SCALE)), str(toy.row(FILL)))
    process = run(command, env=toy.environment())
    if "unshare" in process.stderr or "mount:" in process.stderr:
        pytest.skip(f"no file systems can be mounted here: {process.stderr}")
    assert process.returncode == 0, process.stderr
    return Answer(tuple(process.stdout.splitlines()), process.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mode=0700,size=16k", "no room for the compile"),
        ("mode=0700,size=40k", "no room for the compile"),
        ("mode=0700,nr_inodes=3", "No space left on device"),
        ("mode=0700,ro", "Read-only file system"),
    ],
)
def test_full_or_read_only(toy: Toy, options: str, message: str) -> None:
    """Prevents: a full or read-only disk makes a kernel unavailable."""
    answer = ask_with_mounted_cache(toy, options)
    assert answer.values == [SCALED, FILLED]
    assert answer.errors.count("kernels compiled now are not kept") == 1
    assert message in answer.errors


def test_noexec(toy: Toy) -> None:
    """Prevents: kernels on a file system mounted with noexec cannot be loaded."""
    answer = ask_with_mounted_cache(toy, "mode=0700,noexec")
    assert answer.values == [SCALED, FILLED]
    assert "not kept" not in answer.errors
