"""Bazel's output bases of `qola build`, shared by the manifests of an AITER source.

An output base contains fetched and built files, and has one server. Only one Bazel works in it at a
time; a concurrent build uses another one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from qola_base.cache import own_directory
from qola_base.files import sha256_of_text, write_if_changed
from qola_base.progress import log

OUTPUTS = "outputs"
"""Directory of output bases in the cache."""

LOCKS = ("lock", "users")
"""Lock files: one for a running Bazel, one for running programs that it built."""

_WORKSPACE = "workspace"
"""File with the workspace of the last build, the only one that may overwrite its outputs."""

_kept: dict[Path, IO[str]] = {}


@dataclass(frozen=True)
class OutputBase:
    """A Bazel output base and its lock files."""

    directory: Path

    @property
    def base(self) -> Path:
        """Bazel's own directory."""
        return self.directory / "base"

    def keep(self) -> None:
        """Keep builds of other manifests out while this process runs programs from here.

        Targets of two manifests can have the same paths. Call it before the output base is left.
        """
        if self.directory not in _kept:
            users = (self.directory / LOCKS[1]).open("w")
            fcntl.flock(users, fcntl.LOCK_SH)
            _kept[self.directory] = users


@contextmanager
def output_base(cache: Path, source: str, workspace: Path) -> Iterator[OutputBase]:
    """Yield an output base for exclusive use during the block.

    Args:
        source: identifies the fetched repositories; builds with the same source share them.
        workspace: the workspace to build, locked by the caller.

    Raises:
        QolaError: another user may have written the directory.
    """
    digest = sha256_of_text(source)[:16]
    for number in count(1):
        found = OutputBase(cache / OUTPUTS / f"{digest}-{number}")
        own_directory(found.directory)
        with ExitStack() as stack:
            lock, users = (stack.enter_context((found.directory / n).open("a")) for n in LOCKS)
            if not try_lock(lock):
                continue
            last = found.directory / _WORKSPACE
            same = last.is_file() and last.read_bytes() == os.fsencode(workspace.name)
            if not same and not try_lock(users):
                continue
            # New users need the other lock, too.
            fcntl.flock(users, fcntl.LOCK_UN)
            write_if_changed(last, workspace.name)
            # The time of the last use, for `qola cache --prune`.
            found.directory.touch()
            if number > 1:
                place = found.directory
                log.info(f"another build's outputs are in use: this one fetches into {place}")
            yield found
            return


def try_lock(file: IO[str]) -> bool:
    """Lock a file exclusively; return False if another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
