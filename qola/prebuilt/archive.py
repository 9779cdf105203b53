"""Packs bundles deterministically, and unpacks archives of untrusted servers.

Headers of tar files are read in one canonical form and within bounds: tarfile would read extended
headers of any size into memory.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from qola.bundle.archive import pack
from qola.prebuilt.record import Archive
from qola_base.errors import BundleError, Finding, PrebuiltError
from qola_base.files import ASIDE, sha256_of, writing

_LEVEL = 6

_HEADERS = 64 << 20
"""Largest total size of a tar file's headers and padding: two or three 512-byte blocks per file."""

_MAX_MEMBERS = 20_000
"""Largest number of files and directories. AITER and CK have some thousand headers."""

_MAX_HEADER = 1 << 16
"""Largest extended header of pax or GNU tar in bytes; it mostly holds a path."""

_MAX_BEFORE = 4
_MAX_NAME = 1024
_MAX_DEPTH = 64

_NOT_WHOLE = (EOFError, zlib.error, gzip.BadGzipFile)
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_KINDS = {
    **dict.fromkeys((tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_LONGLINK), "a link"),
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=]+)=")
_REFUSED_PAX = (b"hdrcharset", b"linkpath", b"size")
"""Pax records that affect unpacked files, apart from the path, and unlike times and owners."""


class NotATarError(Exception):
    """A tar file is incomplete, or unlike a bundle; `args` are found and expected."""


def pack_bundle(bundle: Path, output: Path) -> Archive:
    """Pack a bundle's directory into an archive.

    Raises:
        BundleError: `unpack` would refuse the names or the number of the files.
        OSError: the archive cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=ASIDE) as file:
        plain = Path(file.name)
        pack(bundle, plain, prefix=".")
        try:
            for member in _members(_Bounded(file, plain.stat().st_size)):
                file.seek(member.size + -member.size % tarfile.BLOCKSIZE, os.SEEK_CUR)
        except NotATarError as error:
            found, expected = error.args
            raise BundleError(Finding(str(bundle), found, expected)) from None
        file.seek(0)
        # Without name and time, so that the same zlib writes the same bytes.
        with (
            writing(output),
            output.open("wb") as packed,
            gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as stream,
        ):
            shutil.copyfileobj(file, stream, 1 << 20)
        tar = sha256_of(plain)
    size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    return Archive(output.stat().st_size, sha256_of(output), tar, size)


def unpack(archive: Path, directory: Path, limit: int, place: str) -> dict[str, Path]:
    """Unpack an archive with a verified digest into an empty directory.

    Its author may not write outside of that directory.

    Returns:
        The files by their path in the archive.

    Raises:
        PrebuiltError: the archive is invalid, contains a link, special file or duplicate, or has
            more than `limit` bytes.
        OSError: the files cannot be written.
    """
    found: dict[str, Path] = {}
    left = limit
    try:
        with gzip.open(archive) as packed:
            stream = _Bounded(packed, limit + _HEADERS)
            for member in _members(stream):
                if member.isdir():
                    continue
                left -= member.size
                if left < 0:
                    raise NotATarError(f"more than {limit} bytes of files", f"{limit} bytes")
                if member.name in found:
                    raise NotATarError(f"{member.name!r} twice", "each file once")
                found[member.name] = path = directory / member.name
                _write(stream, member, path)
    except NotATarError as error:
        raise _refused(place, *error.args) from None
    except _NOT_WHOLE as error:
        raise _refused(place, f"{type(error).__name__}: {error}", "a whole .tar.gz") from None
    return found


def _refused(place: str, found: str, expected: str) -> PrebuiltError:
    return PrebuiltError(
        Finding(place, found, expected, "do not use it; --no-prebuilt builds"),
        "the archive is not unpacked",
    )


def _write(stream: _Bounded, member: tarfile.TarInfo, path: Path) -> None:
    """Write a file of an archive with the owner of this process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
    except (FileExistsError, NotADirectoryError):
        raise NotATarError(f"{member.name!r} twice", "a file or a directory") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise NotATarError(f"the path {member.name!r}", "names that a file can have") from None
    left = member.size
    with writing(path), file:
        while left:
            part = stream.exactly(min(left, 1 << 20))
            left -= len(part)
            file.write(part)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    stream.skip_padding(member.size)


class _Bounded:
    """Bounds the bytes that are read from a tar file, because headers can claim any size."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, fewer only at the end."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise NotATarError("more than its record says", "files, and little besides")
        return data

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes."""
        data = self.read(size) if size else b""
        if len(data) != size:
            raise NotATarError("it breaks off", "a whole tar file")
        return data

    def skip_padding(self, size: int) -> None:
        """Skip the padding after a member of `size` bytes."""
        self.exactly(-size % tarfile.BLOCKSIZE)


def _members(stream: _Bounded) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar file. The caller reads the content of each before the next.

    A name is a relative path without ``.`` and ``..``, "" for the top. Reads the stream to its end.

    Raises:
        NotATarError: the stream is not a tar file of files and directories, or exceeds a bound.
    """
    count, before, path = 0, 0, b""
    while (block := stream.exactly(tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE):
        header = _header(block)
        if header.type in _EXTENDED:
            if header.size > _MAX_HEADER:
                raise NotATarError(f"a header of {header.size} bytes", f"at most {_MAX_HEADER}")
            text = stream.exactly(header.size)
            stream.skip_padding(header.size)
            is_name = header.type == tarfile.GNUTYPE_LONGNAME
            found = text.rstrip(b"\0") if is_name else _pax_path(text)
            if header.type == tarfile.XGLTYPE and found:
                raise NotATarError("a path for all files", "one for each")
            if path and found:
                raise NotATarError("two paths of one file", "one")
            path = path or found
            before += 1
            if before > _MAX_BEFORE:
                raise NotATarError(f"more than {_MAX_BEFORE} headers before a file", "one or two")
        else:
            header.name = _checked_name(header, path)
            yield header
            count, before, path = count + 1, 0, b""
            if count > _MAX_MEMBERS:
                raise NotATarError(f"more than {_MAX_MEMBERS} files", "as many as a bundle has")
    if path:
        raise NotATarError("a path, and no file", "a file for each path")
    while rest := stream.read(1 << 16):
        if rest.strip(b"\0"):
            raise NotATarError("more behind its end", "nothing there")


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, ValueError, ArithmeticError) as error:
        raise NotATarError(f"a header that cannot be read ({error})", "headers in UTF-8") from None
    if header.size < 0:
        raise NotATarError(f"a file of {header.size} bytes", "sizes that can be")
    return header


def _pax_path(text: bytes) -> bytes:
    """Return the path that a pax header gives its member, b"" for none."""
    found: dict[bytes, bytes] = {}
    while text:
        match = _PAX_RECORD.match(text)
        length = int(match[1]) if match else 0
        if not match or not match.end() < length <= len(text) or text[length - 1 : length] != b"\n":
            raise NotATarError("a pax header that cannot be read", "records: LENGTH NAME=VALUE")
        name, value = match[2], text[match.end() : length - 1]
        if name in found or name.startswith(b"GNU.sparse"):
            raise NotATarError(f"a pax header with {name!r}", "each record once, whole files")
        if name in _REFUSED_PAX:
            raise NotATarError(f"a pax header with {name!r}", "paths, in UTF-8")
        found[name] = value
        text = text[length:]
    return found.get(b"path", b"")


def _checked_name(header: tarfile.TarInfo, path: bytes) -> str:
    """Return the canonical path of a file or a directory; `path` is that of extended headers."""
    try:
        name = path.decode("utf-8") if path else header.name
    except UnicodeDecodeError:
        raise NotATarError(f"the path {path[:_MAX_NAME]!r}", "paths in UTF-8") from None
    shown = repr(name[:_MAX_NAME])
    if not header.isdir() and header.type not in _FILES:
        kind = _KINDS.get(header.type, "a special file")
        raise NotATarError(f"{shown}, {kind}", "files and directories only")
    if header.isdir() and header.size:
        raise NotATarError(f"{shown}, a directory of {header.size} bytes", "files with content")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    odd = name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable()
    large = len(name.encode("utf-8")) > _MAX_NAME or len(parts) > _MAX_DEPTH
    if odd or large or (not header.isdir() and (not parts or name.endswith("/"))):
        expected = f"printable paths below one directory, of at most {_MAX_NAME} bytes"
        raise NotATarError(f"the path {shown}", expected)
    return "/".join(parts)
