"""Directories that qola keeps things in: one process at a time, and nobody else's."""

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

from qola.errors import Finding, QolaError
from qola.progress import log

_FOREIGN = "the cache may be another user's"
_ANOTHERS = "another user's"


@contextmanager
def locked(directory: Path, whose: str) -> Iterator[None]:
    """Keep a second process waiting until the block is left.

    Args:
        directory: made if it is not there; has a file `lock` from then on.
        whose: what has the lock meanwhile, such as "build of this manifest".

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


def kept_directory(
    directory: Path,
    whole: Path,
    whose: str,
    make: Callable[[], object],
) -> Path:
    """Return a directory of the cache, made the first time that it is asked for.

    Args:
        whole: what is there once the directory is as it should be.
        whose: has the lock meanwhile, as `locked` takes it.
        make: makes the directory as a whole, or not at all.

    Raises:
        QolaError: others may have written what is in the cache; or as `make`.
    """
    own_directory(directory.parent)
    if why := foreign(directory):
        if why.place == str(directory):
            # Others may have changed any file below: only a new one is this user's again.
            why = replace(why, fix=f"rm -r {shlex.quote(str(directory))}")
        raise QolaError(why, _FOREIGN)
    if whole.exists():
        # When it was last used: `qola cache --prune` goes by that.
        os.utime(directory)
        return directory
    with locked(directory.parent, whose):
        if not whole.exists():
            make()
    return directory


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return where qola keeps things: docs/guide/setup.md#where-things-are-kept."""
    places = (("QOLA_CACHE_HOME", ""), ("XDG_CACHE_HOME", "qola"), ("HOME", ".cache/qola"))
    for name, below in places:
        if environ.get(name, "").startswith("/"):
            return Path(environ[name], below)
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user; a shell has the same home for it
        home = "/"
    return Path(home, ".cache/qola")


def own_directory(directory: Path) -> None:
    """Make a directory for this user alone, or check that the one that is there is.

    Raises:
        QolaError: as `refuse_foreign`.
    """
    _refuse_loop(directory)
    for missing in reversed([p for p in (directory, *directory.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    refuse_foreign(directory)


def refuse_foreign(directory: Path) -> None:
    """Check that nobody else decides what a directory of the cache holds, or would hold.

    What lies there is run: by Bazel, by Python, by AITER's generators.

    Raises:
        QolaError: another user may have written it, or may replace it.
    """
    _refuse_loop(directory)
    if why := foreign(directory):
        raise QolaError(why, _FOREIGN)


def foreign(directory: Path) -> Finding | None:
    """Return why a directory of the cache may be another user's, None where it is not.

    Nor may its name be more than a word in a file of options.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in str(directory)):
        named = "a name with control characters"
        return Finding(str(directory), named, "a plain name", "QOLA_CACHE_HOME names another place")
    if loop := _loop(directory):
        return loop
    why = distrust(directory)
    if why is None:
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
    """Return which part of a path is a link that leads to itself."""
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


def distrust(path: Path) -> tuple[Path, str] | None:
    """Return what lets others decide what lies at a path, and why; None where nothing does.

    The rule of tools/setup/ownership.sh and cc/runtime/ownership.cpp.
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
