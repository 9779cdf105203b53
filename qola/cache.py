"""A directory that one process at a time works in."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(directory: Path, whose: str, note: Callable[[str], None]) -> Iterator[None]:
    """Keep a second process waiting until the block is left.

    Args:
        directory: made if it is not there; has a file `lock` from then on.
        whose: what has the lock meanwhile, such as "build of this manifest".
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"waiting for another {whose}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return where qola keeps things: docs/guide/setup.md#where-things-are-kept."""
    places = (("QOLA_CACHE_HOME", ""), ("XDG_CACHE_HOME", "qola"), ("HOME", ".cache/qola"))
    for name, below in places:
        if environ.get(name, "").startswith("/"):
            return Path(environ[name], below)
    return Path.home() / ".cache/qola"
