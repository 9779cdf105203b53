"""Changes to a tree's files that are kept in memory until all of them are known to be good."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qola.files import whole


@dataclass(frozen=True)
class File:
    """A file's content and whether it can be executed."""

    data: bytes
    executable: bool = False


class Overlay:
    """A tree as it would be with some files changed.

    Args:
        root: the tree, which may reach its files through symbolic links.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._changed: dict[str, File | None] = {}

    def read(self, path: str) -> File | None:
        """Return a file of the tree as changed so far, None where there is none.

        Raises:
            OSError: it cannot be read.
        """
        if path in self._changed:
            return self._changed[path]
        file = self.root / path
        if not file.is_file():
            return None
        return File(file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))

    def copy(self) -> Overlay:
        """Return the tree with the same changes, to which others can be made."""
        other = Overlay(self.root)
        other._changed.update(self._changed)
        return other

    def put(self, path: str, file: File | None) -> None:
        """Change, make or (None) remove a file; the tree itself stays as it is."""
        self._changed[path] = file

    def write(self) -> tuple[str, ...]:
        """Write all changes to the tree.

        A symbolic link on the way to a file is replaced by a directory of links to what it led to,
        and a file that is one by a real file: what links point to is never written.

        Returns:
            The files that were changed, made or removed, sorted.

        Raises:
            OSError: the tree cannot be written.
        """
        for path, file in sorted(self._changed.items()):
            _materialise(self.root, PurePosixPath(path).parent)
            destination = self.root / path
            if file is None:
                destination.unlink(missing_ok=True)
                continue
            # A file of its own that takes the place of the old one: that may be a link.
            with whole(destination) as stream:
                stream.write(file.data)
                os.fchmod(stream.fileno(), 0o755 if file.executable else 0o644)
        return tuple(sorted(self._changed))


def _materialise(root: Path, directory: PurePosixPath) -> None:
    """Make every directory from `root` down to `directory` a real one."""
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
