"""Packs bundles deterministically, and unpacks archives of untrusted servers."""

from __future__ import annotations

import errno
import gzip
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO

from qola.bundle.archive import pack
from qola.errors import Finding, PrebuiltError
from qola.files import ASIDE, sha256_of, writing
from qola.prebuilt.record import Archive

TOP = "."
"""The top directory in an archive of a bundle."""

_MAX_MEMBERS = 20_000
"""Largest number of files and directories. AITER and CK have some thousand headers."""

_MAX_HEADER = 1 << 16
"""Largest extended header of pax or GNU tar in bytes; it mostly holds a path."""

_MAX_HEADERS = 4 * _MAX_HEADER
"""Largest number of bytes before, between and after files."""

_MAX_NAME = 1024
_MAX_DEPTH = 64
_EXTENDED = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)
_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_LONGLINK)


def pack_bundle(bundle: Path, output: Path) -> Archive:
    """Pack a bundle's directory into an archive."""
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=ASIDE) as file:
        pack(bundle, Path(file.name), TOP)
        # Without name and time, so that the same zlib writes the same bytes.
        with (
            writing(output),
            output.open("wb") as packed,
            gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream,
        ):
            shutil.copyfileobj(file, stream, 1 << 20)
        tar = sha256_of(Path(file.name))
    size = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    return Archive(output.stat().st_size, sha256_of(output), tar, size)


def unpack(archive: Path, directory: Path, limit: int, place: str) -> dict[str, Path]:
    """Unpack an archive with a verified digest into an empty directory.

    Returns:
        The files by their path in the archive.

    Raises:
        PrebuiltError: the archive is invalid, has a link, special file, duplicate or path out of
            the directory, or more than `limit` bytes.
        OSError: the files cannot be written.
    """
    expected = "a whole .tar.gz"
    try:
        return _unpack(archive, directory, limit)
    except _NotATarError as error:
        why, expected = error.args
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        why = f"{type(error).__name__}: {error}"
    except (ValueError, RecursionError) as error:
        # tarfile raises these for the content of extended headers.
        why, expected = f"a header that cannot be read ({str(error)[:200]!a})", "headers in UTF-8"
    raise PrebuiltError(
        Finding(place, why, expected, "do not use it; --no-prebuilt builds"),
        "the archive is not unpacked",
    )


def _unpack(archive: Path, directory: Path, limit: int) -> dict[str, Path]:
    found: dict[str, Path] = {}
    left = limit
    with gzip.open(archive) as packed:
        stream = _Stream(packed)
        # Blocks of 512 bytes, so that tarfile reads nothing behind the end.
        options = {"bufsize": 512, "encoding": "utf-8", "errors": "strict"}
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, **options) as tar:  # type: ignore[call-overload]
            for count, member in enumerate(tar, 1):
                if count > _MAX_MEMBERS:
                    raise _NotATarError(
                        f"more than {_MAX_MEMBERS} files", "as many as a bundle has"
                    )
                name = _checked_name(member)
                stream.left = _MAX_HEADERS
                if member.isdir():
                    continue
                left -= member.size
                if left < 0:
                    raise _NotATarError(f"more than {limit} bytes of files", f"{limit} bytes")
                if name in found:
                    raise _NotATarError(f"{name!r} twice", "each file once")
                stream.left += member.size
                found[name] = directory / name
                _write(tar.extractfile(member), name, found[name], member.mode)
        while rest := stream.read(1 << 16):
            if rest.strip(b"\0"):
                raise _NotATarError("more behind its end", "nothing there")
    return found


class _NotATarError(Exception):
    """A tar file is incomplete, or unlike a bundle; `args` are found and expected."""


class _Stream:
    """Bounds the bytes that tarfile reads at once, because headers can claim any size.

    Attributes:
        left: remaining bytes before the content of the next file.
    """

    def __init__(self, packed: gzip.GzipFile) -> None:
        self._packed, self.left = packed, _MAX_HEADERS

    def read(self, size: int) -> bytes:
        data = self._packed.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise _NotATarError(f"headers of more than {_MAX_HEADERS} bytes", "one or two per file")
        return data


class _Header(tarfile.TarInfo):
    """Raises an error for each header that tarfile would read without bounds, or ignore."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        if len(buf) != tarfile.BLOCKSIZE:
            raise _NotATarError("it breaks off", "a whole tar file")
        if not any(buf):
            return super().frombuf(buf, encoding, errors)  # raises the error that ends the file
        try:
            header = super().frombuf(buf, encoding, errors)
        except (tarfile.TarError, ValueError, ArithmeticError) as error:
            why = f"a header that cannot be read ({error})"
            raise _NotATarError(why, "headers in UTF-8") from None
        if header.type in _EXTENDED:
            if not 0 <= header.size <= _MAX_HEADER:
                raise _NotATarError(f"a header of {header.size} bytes", f"at most {_MAX_HEADER}")
        elif header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            kind = "a link" if header.type in _LINKS else "a special file"
            raise _NotATarError(
                f"{header.name[:_MAX_NAME]!a}, {kind}", "files and directories only"
            )
        return header


def _checked_name(member: tarfile.TarInfo) -> str:
    """Return the relative path of a member without ``.`` and ``..``, "" for the top directory."""
    shown = ascii(member.name[:_MAX_NAME])
    if member.issparse() or member.size < 0:
        raise _NotATarError(f"{shown}, of {member.size} bytes or with holes", "whole files")
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    name, name_size = "/".join(parts), len(member.name.encode("utf-8"))
    odd = member.name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable()
    large = name_size > _MAX_NAME or len(parts) > _MAX_DEPTH
    if odd or large or (not member.isdir() and not parts):
        expected = f"printable paths below one directory, of at most {_MAX_NAME} bytes"
        raise _NotATarError(f"the path {shown}", expected)
    return name


def _write(content: IO[bytes] | None, name: str, path: Path, mode: int) -> None:
    assert content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
    except (FileExistsError, NotADirectoryError):
        raise _NotATarError(f"{name!r} twice", "a file or a directory") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise _NotATarError(f"the path {name!r}", "names that a file can have") from None
    with writing(path), file:
        shutil.copyfileobj(content, file, 1 << 20)
    path.chmod(0o755 if mode & 0o100 else 0o644)
