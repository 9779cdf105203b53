"""Sources of prebuilt bundles: local directories, or servers (qola.prebuilt.http)."""

from __future__ import annotations

import io
import os
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from qola_base.errors import Finding, PrebuiltError
from qola_base.files import whole, writing


class UnreachableError(Exception):
    """A source does not answer with a file; the text has the reason, `hint` a correction or ""."""

    def __init__(self, text: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(text)


class NoDirectoryError(UnreachableError):
    """A directory does not exist (yet)."""


class Source(ABC):
    """A place with files of prebuilt bundles.

    Every function raises UnreachableError if the source does not answer, and PrebuiltError if the
    answer must not be used.
    """

    is_local = True

    @abstractmethod
    def place(self, name: str) -> str:
        """Return the name of a file for messages."""

    @abstractmethod
    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Write at most `limit` bytes of a file to an empty one; return whether it exists."""

    @abstractmethod
    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file atomically."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None if it is missing."""
        file = io.BytesIO()
        return file.getvalue() if self.copy(name, file, limit) else None

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Download a file to a path; return whether it exists."""
        with writing(path), path.open("wb") as file:
            return self.copy(name, file, limit)


def opened(source: Path | bytes) -> BinaryIO:
    """Open a file or its bytes for reading."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def too_large(place: str, limit: int) -> PrebuiltError:
    """Return the error for a file that exceeds its size limit."""
    fix = "do not use it: it is not the file that its record describes"
    return PrebuiltError(Finding(place, f"more than {limit} bytes", f"at most {limit} bytes", fix))


@contextmanager
def _asking(name: str) -> Iterator[None]:
    """Convert an OSError about a source's file to UnreachableError."""
    try:
        yield
    except FileNotFoundError:
        raise NoDirectoryError("no such directory") from None
    except OSError as error:
        raise UnreachableError(f"{name}: {error.strerror}") from None
    except ValueError as error:
        raise UnreachableError(f"{name}: {error}") from None


class DirectorySource(Source):
    """A directory on this machine, in which other users may write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def place(self, name: str) -> str:
        """Return the file's path."""
        return str(self._directory / name)

    def copy(self, name: str, file: BinaryIO, limit: int) -> bool:
        """Copy a regular file."""
        path = self._directory / name
        with _asking(name):
            if not stat.S_ISDIR(self._directory.stat().st_mode):
                raise UnreachableError("no directory")
            try:
                # A FIFO or a device would not end, or act.
                if not stat.S_ISREG(path.stat().st_mode):
                    return False
            except FileNotFoundError:
                return False
            content = path.open("rb")
        left = limit
        with content:
            while True:
                with _asking(name):
                    part = content.read(1 << 20)
                if not part:
                    return True
                left -= len(part)
                if left < 0:
                    raise too_large(str(path), limit)
                file.write(part)

    def write(self, name: str, source: Path | bytes) -> None:
        """Write a file that all users can read."""
        with whole(self._directory / name) as file, opened(source) as content:
            shutil.copyfileobj(content, file, 1 << 20)
            os.fchmod(file.fileno(), 0o644)
