"""Destination of generated files: a directory, or memory if only queries need them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from qola_base.files import write_if_changed


class Folder:
    """Generated files by relative path, on disk or in memory."""

    def __init__(self, directory: Path | None = None) -> None:
        """Use a directory, which the first write creates; None for memory."""
        self._directory = directory
        self._texts: dict[str, bytes] = {}
        self._prefix = ""

    def below(self, name: str) -> Folder:
        """Return a subfolder."""
        if self._directory is not None:
            return Folder(self._directory / name)
        found = Folder()
        found._texts, found._prefix = self._texts, f"{self._prefix}{name}/"
        return found

    def write(self, file: str, content: str | bytes) -> str:
        """Write a file and return its sha256, as `qola_base.files.write_if_changed` does."""
        if self._directory is not None:
            return write_if_changed(self._directory / file, content)
        # As `write_if_changed`.
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        self._texts[self._prefix + file] = data
        return hashlib.sha256(data).hexdigest()

    def text(self, file: str) -> str:
        """Return the text of a written file."""
        if self._directory is not None:
            return (self._directory / file).read_text(encoding="utf-8")
        return self._texts[self._prefix + file].decode("utf-8")
