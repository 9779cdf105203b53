"""Measures the cache, and removes entries that were not used for long."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from qola.build.outputs import LOCKS, OUTPUTS, OutputBase, try_lock
from qola.build.workspace import DISK, WORKSPACES
from qola.common.answers import DIRECTORY as ANSWERS
from qola.fetch.git import TREES
from qola_base.progress import log

_BY_FILE = frozenset({DISK, "verdicts", ANSWERS})
"""Directories whose files are used independently; each use updates the time stamp."""

_PRUNED = (
    DISK,
    "emulators",
    "prebuilt",
    "verdicts",
    ANSWERS,
    TREES,
    WORKSPACES,
    OUTPUTS,
)
"""Directories that qola can make again. bazelw --uninstall removes those of bazelw."""


def sizes(cache: Path) -> dict[str, int]:
    """Return the bytes on disk of each directory of a cache, the largest first."""
    found = {path.name: _size(path) for path in _children(cache) if path.is_dir()}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def prune(cache: Path, days: float) -> int:
    """Remove entries that were not used for `days` days; return the number of freed bytes.

    Entries in use stay, whatever their age.
    """
    before = time.time() - days * 86400
    freed = 0
    for name in _PRUNED:
        if name in _BY_FILE:
            freed += _prune_files(cache / name, before)
            continue
        for path in _children(cache / name):
            if not path.is_dir() or _used(path) >= before:
                continue
            # Of a Bazel server that works in an output base.
            with suppress(OSError, ValueError):
                os.kill(int((OutputBase(path).base / "server/server.pid.txt").read_text()), 0)
                continue
            with ExitStack() as stack:
                locks = filter(Path.is_file, (path / name for name in LOCKS))
                if all(try_lock(stack.enter_context(lock.open())) for lock in locks):
                    freed += _remove(path, f"{name}/{path.name}")
    return freed


def _used(directory: Path) -> float:
    """Return the last write to a directory or to an entry in it, in seconds since 1970."""
    return max(path.lstat().st_mtime for path in (directory, *_children(directory)))


def _prune_files(directory: Path, before: float) -> int:
    freed = number = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and about.st_mtime < before:
                path.unlink()
                freed, number = freed + about.st_blocks * 512, number + 1
    if number:
        log.info(f"removed {number} {'file' if number == 1 else 'files'} of {directory.name}/")
    return freed


def _remove(directory: Path, name: str) -> int:
    freed = _size(directory)
    for path, _, _ in os.walk(directory):
        # Bazel makes directories of outputs read-only.
        os.chmod(path, 0o700)
    shutil.rmtree(directory)
    log.info(f"removed {name}")
    return freed


def _children(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _size(directory: Path) -> int:
    """Return the bytes on disk of a directory tree, without following links."""
    total = 0
    for path, _, files in os.walk(directory):
        for name in ("", *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total
