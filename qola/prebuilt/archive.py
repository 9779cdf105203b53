"""The archive of a bundle: the same bytes for the same files; unpacked with distrust."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tempfile
import zlib
from pathlib import Path

from qola.bundle.archive import pack
from qola.errors import BundleError, Finding, PrebuiltError
from qola.files import ASIDE, sha256_of, writing
from qola.prebuilt.record import Archive
from qola.prebuilt.tar_members import Member, NotATarError, members, skip_padding

TOP = "."
"""The directory in an archive that all files of a bundle are below."""

_LEVEL = 6

_HEADERS = 64 << 20
"""Most bytes of a tar file besides its files' own: two or three blocks of 512 for each."""

_NOT_WHOLE = (EOFError, zlib.error, gzip.BadGzipFile)


def pack_bundle(bundle: Path, output: Path) -> Archive:
    """Write the archive of a bundle's directory to a file.

    Raises:
        BundleError: `unpack` would refuse it, for its names or their number.
        OSError: it cannot be written.
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
        # Neither a name nor a time: the same bytes, as far as zlib's version is the same.
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
    """Unpack an archive whose digest is right, but whose maker is not trusted with other files.

    Return the files, in a directory that is empty before, by their path in the archive.

    Raises:
        PrebuiltError: it is not such an archive, or has a member that is neither a file nor a
            directory of its own, or more than `limit` bytes.
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
    """Write a file of an archive, as whoever unpacks it may write it."""
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
    """Reads no more than a tar file of its files' size can have: a header may claim any size."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`."""
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
