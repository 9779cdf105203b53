"""Where prebuilt bundles lie: a directory here, or a server's (qola.prebuilt.http)."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO

from qola.errors import Finding, PrebuiltError


class UnreachableError(Exception):
    """A source does not answer, or not with a file; its text says why."""


class Source(ABC):
    """A place with files of prebuilt bundles.

    Every function raises UnreachableError where the place does not answer, and PrebuiltError where
    it answers what must not be used.
    """

    is_local = True

    @abstractmethod
    def place(self, name: str) -> str:
        """Return how messages call a file of it."""

    @abstractmethod
    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Write at most `limit` bytes of a file to an empty one; return whether it is there."""

    @abstractmethod
    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there, whole or not at all."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None where there is none."""
        file = io.BytesIO()
        return file.getvalue() if self.copy(name, file, limit) else None

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Put a file at a path; return whether there is one."""
        with path.open("wb") as file:
            return self.copy(name, file, limit)


def opened(source: Path | bytes) -> BinaryIO:
    """Return what reads a file or its bytes."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def too_large(place: str, limit: int) -> PrebuiltError:
    """Return the error for a file of more bytes than it may have."""
    fix = "do not use it: it is not the file that its record describes"
    return PrebuiltError(Finding(place, f"more than {limit} bytes", f"at most {limit} bytes", fix))


class DirectorySource(Source):
    """A directory on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def place(self, name: str) -> str:
        """Return the file's path."""
        return str(self._directory / name)

    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Copy a file; others may have made it their own."""
        if not self._directory.is_dir():
            raise UnreachableError("no such directory")
        path = self._directory / name
        if not path.is_file():
            return False
        if path.stat().st_size > limit:
            raise too_large(str(path), limit)
        try:
            content = path.open("rb")
        except OSError as error:
            raise UnreachableError(f"{name}: {error.strerror}") from None
        with content:
            shutil.copyfileobj(content, file, 1 << 20)
        return True

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there: beside its place, then renamed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{name}.", dir=self._directory)
        try:
            with opened(source) as content, os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            # As others may read what this process writes elsewhere.
            os.chmod(aside, 0o644)
            os.replace(aside, self._directory / name)
        finally:
            Path(aside).unlink(missing_ok=True)
