"""Packs bundles deterministically, and unpacks archives of untrusted servers."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tempfile
import zlib
from pathlib import Path

from qola.bundle.archive import pack
from qola.prebuilt.record import Archive
from qola.prebuilt.tar_members import Member, NotATarError, members, skip_padding
from qola_base.errors import BundleError, Finding, PrebuiltError
from qola_base.files import ASIDE, sha256_of, writing

TOP = "."
"""The top directory in an archive of a bundle."""

_LEVEL = 6

_HEADERS = 64 << 20
"""Largest total size of a tar file's headers and padding: two or three 512-byte blocks per file."""

_NOT_WHOLE = (EOFError, zlib.error, gzip.BadGzipFile)


def pack_bundle(bundle: Path, output: Path) -> Archive:
    """Pack a bundle's directory into an archive.

    Raises:
        BundleError: `unpack` would refuse the names or the number of the files.
        OSError: the archive cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=ASIDE) as file:
        plain = Path(file.name)
        pack(bundle, plain, TOP)
        try:
            for member in members(file):
                file.seek(member.size + -member.size % 512, os.SEEK_CUR)
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
            for member in members(stream):
                if member.is_directory:
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


def _write(stream: _Bounded, member: Member, path: Path) -> None:
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
            part = stream.read(min(left, 1 << 20))
            if not part:
                raise NotATarError("it breaks off", "a whole tar file")
            left -= len(part)
            file.write(part)
    path.chmod(0o755 if member.is_executable else 0o644)
    skip_padding(stream, member.size)


class _Bounded:
    """Bounds the bytes that are read from a tar file, because headers can claim any size."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise NotATarError("more than its record says", "files, and little besides")
        return data


def _refused(place: str, found: str, expected: str) -> PrebuiltError:
    return PrebuiltError(
        Finding(place, found, expected, "do not use it; --no-prebuilt builds"),
        "the archive is not unpacked",
    )
