"""Keeps changes to a tree's files in memory until all of them are known to apply."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qola.files import whole


@dataclass(frozen=True)
class File:
    """The content and executable bit of a file."""

    data: bytes
    executable: bool = False


class Overlay:
    """A tree as it would be with some files changed. It may reach files through symbolic links."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changed: dict[str, File | None] = {}

    def read(self, path: str) -> File | None:
        """Return a file of the tree with the changes so far, None if it is missing."""
        if path in self._changed:
            return self._changed[path]
        file = self.root / path
        if not file.is_file():
            return None
        return File(file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))

    def copy(self) -> Overlay:
        """Return an independent overlay with the same changes."""
        other = Overlay(self.root)
        other._changed.update(self._changed)
        return other

    def put(self, path: str, file: File | None) -> None:
        """Change, create or (None) remove a file in memory."""
        self._changed[path] = file

    def write(self) -> tuple[str, ...]:
        """Write all changes to the tree; return the affected files, sorted.

        Targets of links are never written: a linked directory is replaced by a directory of links,
        a linked file by a regular file.
        """
        for path, file in sorted(self._changed.items()):
            _materialise(self.root, PurePosixPath(path).parent)
            destination = self.root / path
            if file is None:
                destination.unlink(missing_ok=True)
                continue
            # A new file replaces the old one, which may be a link.
            with whole(destination) as stream:
                stream.write(file.data)
                os.fchmod(stream.fileno(), 0o755 if file.executable else 0o644)
        return tuple(sorted(self._changed))


def _materialise(root: Path, directory: PurePosixPath) -> None:
    """Replace linked directories from `root` down to `directory` by real ones."""
    for parent in (*reversed(directory.parents), directory):
        path = root / parent
        if path.is_symlink():
            origin = path.resolve()
            path.unlink()
            path.mkdir()
            for entry in sorted(origin.iterdir()):
                (path / entry.name).symlink_to(entry)
        else:
            path.mkdir(exist_ok=True)
