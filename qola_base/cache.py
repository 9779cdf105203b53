"""Cache directories: private to this user, and locked while a process writes."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from qola_base.errors import Finding, QolaError
from qola_base.progress import log

_FOREIGN = "the cache may be another user's"
_ANOTHERS = "another user's"


@contextmanager
def locked(directory: Path, whose: str) -> Iterator[None]:
    """Lock a directory for the block; a second process waits.

    Args:
        directory: created if missing; contains a file `lock` afterwards.
        whose: the holder of the lock in messages, such as "build of this manifest".

    Raises:
        QolaError: `own_directory` refuses the directory.
    """
    own_directory(directory)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info(f"waiting for another {whose}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kept_directory(directory: Path, whole: Path, whose: str, make: Callable[[], object]) -> Path:
    """Return a directory of the cache, made by the first call.

    Args:
        whole: a path that exists if and only if the directory is complete.
        whose: the holder of the lock in messages, as for `locked`.
        make: creates the complete directory, or nothing.

    Raises:
        QolaError: another user may have written the cache; or as `make`.
    """
    own_directory(directory.parent)
    if why := foreign(directory):
        if why.place == str(directory):
            # Another user may have changed any file below: only a new directory can be trusted.
            why = replace(why, fix=f"rm -r {shlex.quote(str(directory))}")
        raise QolaError(why, _FOREIGN)
    if whole.exists():
        # The time of the last use, for `qola cache --prune`.
        os.utime(directory)
        return directory
    with locked(directory.parent, whose):
        if not whole.exists():
            make()
    return directory


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return qola's cache directory, by the rule of docs/guide/setup.md#where-things-are-kept."""
    places = (("QOLA_CACHE_HOME", ""), ("XDG_CACHE_HOME", "qola"), ("HOME", ".cache/qola"))
    for name, below in places:
        if environ.get(name, "").startswith("/"):
            return Path(environ[name], below)
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user without an entry; shells use the same home
        home = "/"
    return Path(home, ".cache/qola")


def own_directory(directory: Path) -> None:
    """Create a private directory (mode 0700), or check that the existing one is private.

    Raises:
        QolaError: as `refuse_foreign`.
    """
    _refuse_loop(directory)
    for missing in reversed([p for p in (directory, *directory.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    refuse_foreign(directory)


def refuse_foreign(directory: Path) -> None:
    """Check that no other user controls the content of a cache directory.

    Bazel, Python and AITER's generators run files from it.

    Raises:
        QolaError: another user may have written it, or may replace it.
    """
    _refuse_loop(directory)
    if why := foreign(directory):
        raise QolaError(why, _FOREIGN)


def foreign(directory: Path) -> Finding | None:
    """Return why another user may control a cache directory, or None.

    Names with control characters are refused, too: they would break files of options.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in str(directory)):
        found = "a name with control characters"
        return Finding(str(directory), found, "a plain name", "QOLA_CACHE_HOME names another place")
    if loop := _loop(directory):
        return loop
    if (why := distrust(directory)) is None:
        return None
    path, found = why
    fix = "QOLA_CACHE_HOME names another place"
    if not found.startswith(_ANOTHERS):  # whose mode this user cannot change
        fix += f"; or, after a look at it: chmod go-w {shlex.quote(str(path))}"
    expected = "a directory of yours or root's, which nobody else may write to"
    return Finding(str(path), found, expected, fix)


def _refuse_loop(directory: Path) -> None:
    if loop := _loop(directory):
        raise QolaError(loop, "the cache cannot be used")


def _loop(directory: Path) -> Finding | None:
    """Return the finding for a part of a path that is a symbolic link to itself."""
    path = next(filter(_leads_to_itself, (*reversed(directory.parents), directory)), None)
    if path is None:
        return None
    found, expected = "a symbolic link that leads to itself", "a directory, or nothing"
    fix = f"rm {shlex.quote(str(path))}; or QOLA_CACHE_HOME names another place"
    return Finding(str(path), found, expected, fix)


def _leads_to_itself(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def writable_by_others(path: Path) -> tuple[Path, str] | None:
    """Return a directory at or above a path in which others can create files, and its facts.

    Like `distrust`, but also for sticky directories such as /tmp: nobody can replace a directory
    there, but others can create its neighbours.
    """
    if why := distrust(path):
        return why
    real = Path(os.path.realpath(path))
    for each in (real, *real.parents):
        if each.exists() and (mode := stat.S_IMODE(each.stat().st_mode)) & stat.S_IWOTH:
            return each, f"writable by others (mode {mode:04o})"
    return None


def distrust(path: Path) -> tuple[Path, str] | None:
    """Return what lets others decide what lies at a path, and why; None where nothing does.

    The rule of tools/setup/ownership.sh and runtime/lazy/ownership.cpp.
    """
    trusted = {0, os.geteuid()}
    everybody = os.stat("/").st_uid  # in a user namespace root may be shown as nobody
    # Path.resolve() raises for links that lead to themselves.
    real = Path(os.path.realpath(path))
    for each in dict.fromkeys((*reversed(path.parents), path, *reversed(real.parents), real)):
        if not os.path.lexists(each):
            continue
        status = each.lstat()
        mode = stat.S_IMODE(status.st_mode)
        facts = f"(mode {mode:04o}, owner {status.st_uid})"
        if status.st_uid not in trusted and (each in (path, real) or status.st_uid != everybody):
            return each, f"{_ANOTHERS} {facts}"
        # Nobody may write to a link, whatever its mode.
        others = stat.S_IWOTH | (stat.S_IWGRP if each == real else 0)
        sticky = mode & stat.S_ISVTX and each != real
        if mode & others and not sticky and not stat.S_ISLNK(status.st_mode):
            return each, f"writable by others {facts}"
    return None
