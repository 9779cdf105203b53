"""Where prebuilt bundles lie: a directory, or a directory of an HTTP server."""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import BinaryIO, Protocol

from qola.errors import Finding, PrebuiltError, QolaError
from qola.prebuilt.http import HttpClient, UnreachableError
from qola.prebuilt.options import OPTION, TOKEN_PLACES, TOKEN_VARIABLE, URL_VARIABLE


class Source(Protocol):
    """A place with files of prebuilt bundles.

    Every function raises UnreachableError where the place does not answer, and PrebuiltError where
    it answers what must not be used.
    """

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""

    def place(self, name: str) -> str:
        """Return how messages call a file of it."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None where there is none."""

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Put a file at a path; returns whether there is one."""

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there, whole or not at all."""


class DirectorySource:
    """A directory on this machine."""

    is_local = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __str__(self) -> str:
        return str(self._directory)

    def place(self, name: str) -> str:
        """Return the file's path."""
        return str(self._directory / name)

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None where there is none."""
        path = self._found(name, limit)
        if path is None:
            return None
        with _readable(path) as file:
            return file.read()

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Copy a file to a path; returns whether there is one."""
        found = self._found(name, limit)
        if found is None:
            return False
        with _readable(found) as content, path.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        return True

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there: beside its place, then renamed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{name}.", dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as file:
                if isinstance(source, bytes):
                    file.write(source)
                else:
                    with source.open("rb") as content:
                        shutil.copyfileobj(content, file, 1 << 20)
            # As others may read what this process writes elsewhere.
            os.chmod(aside, 0o644)
            os.replace(aside, self._directory / name)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise

    def _found(self, name: str, limit: int) -> Path | None:
        if not self._directory.is_dir():
            raise UnreachableError("no such directory")
        path = self._directory / name
        if not path.is_file():
            return None
        if path.stat().st_size > limit:
            raise PrebuiltError(
                Finding(
                    str(path),
                    f"{path.stat().st_size} bytes",
                    f"at most {limit} bytes",
                    "do not use it: it is not the file that its record describes",
                )
            )
        return path


def _readable(path: Path) -> BinaryIO:
    """Opens a file of a directory, which others may have made their own."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreachableError(f"{path.name}: {error.strerror}") from None


class HttpSource:
    """A directory of an HTTP server."""

    is_local = False

    def __init__(self, base: str, client: HttpClient) -> None:
        self._base = base.rstrip("/")
        self._client = client

    def __str__(self) -> str:
        return self._base

    def place(self, name: str) -> str:
        """Return the file's URL."""
        return f"{self._base}/{urllib.parse.quote(name)}"

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a small file, None where there is none."""
        return self._client.read(self.place(name), limit)

    def download(self, name: str, path: Path, limit: int) -> bool:
        """Fetch a file, going on with what is there of it; returns whether there is one."""
        return self._client.download(self.place(name), path, limit)

    def write(self, name: str, source: Path | bytes) -> None:
        """Put a file there."""
        self._client.put(self.place(name), source)


def parse_source(text: str, folder: Path, client: HttpClient, place: str) -> Source:
    """Return the source that a text means.

    Args:
        text: http://, https:// or file:// URL, or a directory.
        folder: what a directory is relative to.
        client: fetches over HTTP.
        place: where the text stands; outside of `TOKEN_PLACES` the client's token is not sent.

    Raises:
        QolaError: it is none of these.
    """
    parts = urllib.parse.urlsplit(text)
    expected = "an http, https or file URL without user, query and fragment, or a directory"
    fix = f"{TOKEN_VARIABLE} is sent to a server that wants to know who asks"
    if "://" not in text:
        return DirectorySource(folder / Path(text).expanduser())
    if parts.query or parts.fragment or "@" in parts.netloc:
        # A password would show in messages.
        shown = urllib.parse.urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))
        raise QolaError(Finding(place, f"{shown}, with more than a path", expected, fix))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return DirectorySource(Path(urllib.request.url2pathname(parts.path)))
    if parts.scheme in ("http", "https") and parts.hostname:
        if place not in TOKEN_PLACES:
            why = f"only {OPTION}, --to and {URL_VARIABLE} name who gets {TOKEN_VARIABLE}"
            client = client.without_token(why)
        return HttpSource(text, client)
    raise QolaError(Finding(place, text, expected))
