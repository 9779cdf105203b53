"""The sizes of cache directories, and the removal of old files."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from qola.build.housekeeping import prune, sizes
from tests.support.folders import write

_OLD = time.time() - 40 * 86400


def age(directory: Path) -> None:
    """Set the times of a directory and of all files in it to forty days ago."""
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (_OLD, _OLD), follow_symlinks=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache with a used workspace, an output base, and files of other kinds."""
    cache = tmp_path / "cache"
    write(
        tmp_path,
        {
            "cache/disk/cas/ab/old": "o" * 9000,
            "cache/disk/cas/ab/new": "n",
            "cache/emulators/old/engine.so": "e",
            "cache/emulators/new/engine.so": "e",
            "cache/generated/old": "g",
            "cache/generated/new": "g",
            "cache/verdicts/old": "v",
            "cache/verdicts/new": "v",
            "cache/trees/old/aiter/file": "t",
            "cache/trees/new/aiter/file": "t",
            "cache/trees/lock": "",
            "cache/roots/x/bin/bazel": "b",
            "cache/aiter/mine": "m",
            "cache/workspaces/mine-1/lock": "",
            "cache/workspaces/mine-1/events.json": "",
            "cache/outputs/abc-1/lock": "",
            "cache/outputs/abc-1/users": "",
            "cache/outputs/abc-1/base/execroot/_main/out/file": "f" * 50_000,
        },
    )
    (cache / "outputs/abc-1/base/execroot/_main/out").chmod(0o555)
    return cache


def list_files(cache: Path) -> set[str]:
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}


def test_sizes(cache: Path) -> None:
    """Prevents: gigabytes of cache, most of it Bazel's outputs, that `qola` does not report."""
    found = sizes(cache)
    removable = {"disk", "emulators", "generated", "trees", "verdicts", "workspaces", "outputs"}
    assert {*found} == {"aiter", "roots"} | removable
    assert 50_000 < found["outputs"] < 90_000
    assert next(iter(found)) == "outputs"
    assert sizes(cache / "absent") == {}


def test_used_files_are_kept(cache: Path, logged: list[str]) -> None:
    """Prevents: a build from scratch because unrelated files of the cache were old."""
    before = list_files(cache)
    assert prune(cache, 30) == 0
    assert list_files(cache) == before
    age(cache / "disk/cas/ab/old")
    for name in ("disk/cas/ab/old", "generated/old", "verdicts/old"):
        os.utime(cache / name, (_OLD, _OLD))
    age(cache / "emulators/old")
    age(cache / "trees/old")
    age(cache / "roots")
    age(cache / "aiter")
    assert prune(cache, 30) > 9000
    removed = {"disk/cas/ab/old", "generated/old", "verdicts/old"}
    removed |= {"emulators/old/engine.so", "trees/old/aiter/file"}
    assert before - list_files(cache) == removed
    assert sorted(logged) == [
        "removed 1 file of disk/",
        "removed 1 file of generated/",
        "removed 1 file of verdicts/",
        "removed emulators/old",
        "removed trees/old",
    ]


def test_unused_workspaces_and_outputs_are_removed(cache: Path, logged: list[str]) -> None:
    """Prevents: gigabytes of outputs that have been unused for a month."""
    age(cache / "workspaces/mine-1")
    age(cache / "outputs/abc-1")
    assert prune(cache, 30) > 50_000
    assert logged == ["removed workspaces/mine-1", "removed outputs/abc-1"]
    assert list((cache / "outputs").iterdir()) == []
    assert list((cache / "workspaces").iterdir()) == []


def test_locked_workspace_is_kept(cache: Path) -> None:
    """Prevents: the workspace of a running build removed."""
    age(cache / "workspaces/mine-1")
    with (cache / "workspaces/mine-1/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prune(cache, 30) == 0
    assert (cache / "workspaces/mine-1/events.json").is_file()


@pytest.mark.parametrize("user", ["lock", "users", "a server"])
def test_outputs_in_use_are_kept(cache: Path, user: str) -> None:
    """Prevents: outputs removed while Bazel, or a program of `qola verify`, uses them."""
    base = cache / "outputs/abc-1"
    if user == "a server":
        write(base / "base/server", {"server.pid.txt": str(os.getpid())})
    age(base)
    with ExitStack() as stack:
        if user != "a server":
            file = stack.enter_context((base / user).open())
            fcntl.flock(file, fcntl.LOCK_SH if user == "users" else fcntl.LOCK_EX)
        assert prune(cache, 30) == 0
    assert (base / "base/execroot/_main/out/file").is_file()
