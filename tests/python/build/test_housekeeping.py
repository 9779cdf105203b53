"""The size of what is kept, and what is removed of it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from qola.build.housekeeping import OUTPUTS, parts, prune
from tests.python.folders import write

_OLD = time.time() - 40 * 86400


def age(directory: Path) -> None:
    """Make a directory and all below it forty days old."""
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (_OLD, _OLD), follow_symlinks=False)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a workspace that was built in, and its output base, beside files of others."""
    cache, base = tmp_path / "cache", tmp_path / "bazel/abc"
    workspace = cache / "workspaces/mine-1"
    info = {"id": {"workspace": {}}, "workspaceInfo": {"localExecRoot": f"{base}/execroot/_main"}}
    write(
        tmp_path,
        {
            "cache/disk/cas/ab/old": "o" * 9000,
            "cache/disk/cas/ab/new": "n",
            "cache/generated/old": "g",
            "cache/generated/new": "g",
            "cache/trees/old/aiter/file": "t",
            "cache/trees/new/aiter/file": "t",
            "cache/trees/lock": "",
            "cache/roots/x/bin/bazel": "b",
            "cache/aiter/mine": "m",
            "cache/workspaces/mine-1/lock": "",
            "cache/workspaces/mine-1/events.json": json.dumps(info) + "\n",
            "bazel/abc/DO_NOT_BUILD_HERE": str(workspace),
            "bazel/abc/execroot/_main/out/file": "f" * 50_000,
        },
    )
    (base / "execroot/_main/out").chmod(0o555)
    return cache


def files(cache: Path) -> set[str]:
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}


def test_sizes(cache: Path) -> None:
    """Prevents: a cache of gigabytes that nobody can find, most of it in Bazel's outputs."""
    sizes = {part.name: part.size for part in parts(cache)}
    assert {*sizes} == {"aiter", "disk", "generated", "roots", "trees", "workspaces", OUTPUTS}
    assert 50_000 < sizes[OUTPUTS] < 90_000
    assert next(iter(sizes)) == OUTPUTS
    assert parts(cache / "absent") == []


def test_what_was_used_stays(cache: Path) -> None:
    """Prevents: a build that starts from nothing because something else was old."""
    before = files(cache)
    assert prune(cache, 30, print) == 0
    assert files(cache) == before
    age(cache / "disk/cas/ab/old")
    for name in ("disk/cas/ab/old", "generated/old"):
        os.utime(cache / name, (_OLD, _OLD))
    age(cache / "trees/old")
    age(cache / "roots")
    age(cache / "aiter")
    said: list[str] = []
    assert prune(cache, 30, said.append) > 9000
    gone = {"disk/cas/ab/old", "generated/old", "trees/old/aiter/file"}
    assert before - files(cache) == gone
    told = ["removed 1 files of disk/", "removed 1 files of generated/", "removed trees/old"]
    assert said == told


def test_a_workspace_goes_with_its_outputs(cache: Path, tmp_path: Path) -> None:
    """Prevents: gigabytes of outputs that belong to a workspace that is gone."""
    age(cache / "workspaces/mine-1")
    prune(cache, 30, print)
    assert not (tmp_path / "bazel/abc").exists()
    assert list((cache / "workspaces").iterdir()) == []


def test_what_is_in_use_stays(cache: Path, tmp_path: Path) -> None:
    """Prevents: the workspace or the outputs of a build that runs removed below it."""
    age(cache / "workspaces/mine-1")
    write(tmp_path / "bazel/abc/server", {"server.pid.txt": str(os.getpid())})
    with (cache / "workspaces/mine-1/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prune(cache, 30, print) == 0
    assert (cache / "workspaces/mine-1/events.json").is_file()
    assert (tmp_path / "bazel/abc/execroot").is_dir()


def test_another_workspaces_outputs_stay(cache: Path, tmp_path: Path) -> None:
    """Prevents: an output base that a user has named for something else, removed."""
    (tmp_path / "bazel/abc/DO_NOT_BUILD_HERE").write_text("/home/somebody/project")
    age(cache / "workspaces/mine-1")
    prune(cache, 30, print)
    assert (tmp_path / "bazel/abc/execroot").is_dir()
    assert OUTPUTS not in {part.name for part in parts(cache)}
