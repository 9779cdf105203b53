"""The size of what is kept, and what is removed of it."""

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
    """Make a directory and all below it forty days old."""
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (_OLD, _OLD), follow_symlinks=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a workspace that was built in, and an output base, beside files of others."""
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


def files(cache: Path) -> set[str]:
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}


def test_sizes(cache: Path) -> None:
    """Prevents: a cache of gigabytes that nobody can find, most of it in Bazel's outputs."""
    found = sizes(cache)
    made = {"disk", "emulators", "generated", "trees", "verdicts", "workspaces", "outputs"}
    assert {*found} == {"aiter", "roots"} | made
    assert 50_000 < found["outputs"] < 90_000
    assert next(iter(found)) == "outputs"
    assert sizes(cache / "absent") == {}


def test_what_was_used_stays(cache: Path, logged: list[str]) -> None:
    """Prevents: a build that starts from nothing because something else was old."""
    before = files(cache)
    assert prune(cache, 30) == 0
    assert files(cache) == before
    age(cache / "disk/cas/ab/old")
    for name in ("disk/cas/ab/old", "generated/old", "verdicts/old"):
        os.utime(cache / name, (_OLD, _OLD))
    age(cache / "emulators/old")
    age(cache / "trees/old")
    age(cache / "roots")
    age(cache / "aiter")
    assert prune(cache, 30) > 9000
    gone = {"disk/cas/ab/old", "generated/old", "verdicts/old"}
    gone |= {"emulators/old/engine.so", "trees/old/aiter/file"}
    assert before - files(cache) == gone
    assert sorted(logged) == [
        "removed 1 file of disk/",
        "removed 1 file of generated/",
        "removed 1 file of verdicts/",
        "removed emulators/old",
        "removed trees/old",
    ]


def test_workspaces_and_outputs_go(cache: Path, logged: list[str]) -> None:
    """Prevents: gigabytes of outputs that nobody has used for a month."""
    age(cache / "workspaces/mine-1")
    age(cache / "outputs/abc-1")
    assert prune(cache, 30) > 50_000
    assert logged == ["removed workspaces/mine-1", "removed outputs/abc-1"]
    assert list((cache / "outputs").iterdir()) == []
    assert list((cache / "workspaces").iterdir()) == []


def test_what_is_in_use_stays(cache: Path) -> None:
    """Prevents: the workspace of a build that runs removed below it."""
    age(cache / "workspaces/mine-1")
    with (cache / "workspaces/mine-1/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prune(cache, 30) == 0
    assert (cache / "workspaces/mine-1/events.json").is_file()


@pytest.mark.parametrize("who", ["lock", "users", "a server"])
def test_outputs_in_use_stay(cache: Path, who: str) -> None:
    """Prevents: outputs removed below Bazel, or below a program that `qola verify` runs."""
    base = cache / "outputs/abc-1"
    if who == "a server":
        write(base / "base/server", {"server.pid.txt": str(os.getpid())})
    age(base)
    with ExitStack() as stack:
        if who != "a server":
            file = stack.enter_context((base / who).open())
            fcntl.flock(file, fcntl.LOCK_SH if who == "users" else fcntl.LOCK_EX)
        assert prune(cache, 30) == 0
    assert (base / "base/execroot/_main/out/file").is_file()
