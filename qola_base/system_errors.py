"""Turns errors of the operating system into errors that a user can correct."""

from __future__ import annotations

import errno
import os

from qola_base.errors import Finding, QolaError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FIXES = {
    **dict.fromkeys(_FULL, "df -h and df -i of that directory show what is full; free some"),
    errno.EROFS: "make it writable for this user",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "ls -ld of it and of the directories above shows the owners; make it readable or writable "
        "for this user",
    ),
    errno.ELOOP: "rm of the symbolic link that leads to itself",
}
_ELSEWHERE = (
    "another directory: --output-dir for results, QOLA_CACHE_HOME for the cache, TMPDIR for "
    "temporary files"
)


def system_error(error: Exception) -> QolaError | None:
    """Return the user's error for a resource that the system refuses; None for a bug of qola.

    The resource is a file, memory, a process or a thread.
    """
    # Python has no exception class for this.
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if isinstance(error, MemoryError) or thread:
        return _limit_error("no further thread" if thread else "no memory left")
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.EAGAIN, errno.ENOMEM) and error.filename is None:
        return _limit_error(error.strerror or str(error))
    return disk_error(error)


def _limit_error(found: str) -> QolaError:
    expected = "memory, processes and threads for a few programs at once"
    fix = "ulimit -a shows this shell's limits; a container has its own limits: memory, pids"
    return QolaError(Finding("this machine", found, expected, fix))


def disk_error(error: OSError) -> QolaError:
    """Return the user's error for a file or directory that cannot be written or read."""
    place = path_text(error.filename2 or error.filename) or "standard output or a file"
    full = error.errno in _FULL
    expected = "free space" if full else "a file or directory that qola can use"
    fix = _FIXES.get(error.errno or 0, "look at it with ls -ld")
    words = error.strerror or str(error) or type(error).__name__
    return QolaError(Finding(place, words, expected, f"{fix}; or {_ELSEWHERE}"))


def path_text(path: object) -> str:
    """Return a file name of an OSError as text, "" if it has none."""
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
