"""Bazel's output bases of `qola build`, which the manifests of an AITER source share.

An output base holds what Bazel fetched and built, and has one server. Only one Bazel works in it at
a time: a second build takes the next.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from qola.cache import own_directory
from qola.files import sha256_of_text, write_if_changed
from qola.progress import log

OUTPUTS = "outputs"
"""Directory below the cache that output bases are in."""

LOCKS = ("lock", "users")
"""Files that are locked: while Bazel runs, and while programs run that it built."""

_WORKSPACE = "workspace"
"""File that names the workspace of the last build, which alone may overwrite what it built."""

_kept: dict[Path, IO[str]] = {}


@dataclass(frozen=True)
class OutputBase:
    """An output base of Bazel's and the files that say who uses it."""

    directory: Path

    @property
    def base(self) -> Path:
        """Bazel's own directory."""
        return self.directory / "base"

    def keep(self) -> None:
        """Keep builds of other manifests out as long as this process lives.

        It runs programs from there, and the targets of two manifests may have the same paths. Call
        it before the output base is left.
        """
        if self.directory not in _kept:
            users = (self.directory / LOCKS[1]).open("w")
            fcntl.flock(users, fcntl.LOCK_SH)
            _kept[self.directory] = users


@contextmanager
def output_base(cache: Path, source: str, workspace: Path) -> Iterator[OutputBase]:
    """Yield an output base that no other process builds in until the block is left.

    Args:
        cache: qola's cache directory.
        source: all that repositories are fetched by: builds with the same share them.
        workspace: the workspace to build, which nobody else builds meanwhile.

    Raises:
        QolaError: another user may have written what is there.
    """
    digest = sha256_of_text(source)[:16]
    for number in count(1):
        found = OutputBase(cache / OUTPUTS / f"{digest}-{number}")
        own_directory(found.directory)
        with ExitStack() as stack:
            lock, users = (stack.enter_context((found.directory / n).open("a")) for n in LOCKS)
            if not _locked(lock):
                continue
            last = found.directory / _WORKSPACE
            same = last.is_file() and last.read_text(encoding="utf-8") == workspace.name
            if not same and not _locked(users):
                continue
            # Nobody becomes a user without the other lock.
            fcntl.flock(users, fcntl.LOCK_UN)
            write_if_changed(last, workspace.name)
            # When it was last used: `qola cache --prune` goes by that.
            found.directory.touch()
            if number > 1:
                log.info(
                    f"another build's outputs are in use: this one fetches into {found.directory}"
                )
            yield found
            return


def _locked(file: IO[str]) -> bool:
    """Lock a file for this process alone; return whether nobody else has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
