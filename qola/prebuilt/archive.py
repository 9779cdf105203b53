"""The archive of a bundle: the same bytes for the same files; unpacked with distrust."""

from __future__ import annotations

import errno
import gzip
import io
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from qola.bundle.archive import pack
from qola.errors import Finding, PrebuiltError
from qola.files import sha256_of
from qola.prebuilt.record import Archive

TOP = "."
"""The directory in an archive that all files of a bundle are below."""

_LEVEL = 6

_HEADERS = 64 << 20
"""Most bytes of a tar file besides its files' own: two or three blocks of 512 for each."""

_NOT_WHOLE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


def pack_bundle(bundle: Path, output: Path) -> Archive:
    """Write the archive of a bundle's directory to a file."""
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=".qola-") as file:
        plain = Path(file.name)
        pack(bundle, plain, TOP)
        # Neither a name nor a time: the same bytes, as far as zlib's version is the same.
        with (
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
    """
    found: dict[str, Path] = {}
    size = 0
    try:
        with (
            gzip.open(archive) as stream,
            tarfile.open(fileobj=_Bounded(stream, limit + _HEADERS, place), mode="r|") as members,
        ):
            for member in members:
                name = _checked(member, found, place)
                if name is None:
                    continue
                size += member.size
                if size > limit:
                    raise _refused(place, f"more than {limit} bytes of files", f"{limit} bytes")
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                source = members.extractfile(member)
                assert source is not None, "a regular file has content"
                with source, path.open("xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                path.chmod(0o755 if member.mode & 0o100 else 0o644)
                found[name] = path
    except (*_NOT_WHOLE, FileExistsError, NotADirectoryError) as error:
        raise _refused(place, f"{type(error).__name__}: {error}", "a whole .tar.gz") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise _refused(place, str(error), "names that a file can have") from None
    return found


class _Bounded(io.RawIOBase):
    """Reads no more than a tar file of its files' size can have: a header may claim any size."""

    def __init__(self, stream: gzip.GzipFile, limit: int, place: str) -> None:
        self._stream = stream
        self._left = limit
        self._place = place

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size`."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _refused(self._place, "more than its record says", "files, and little besides")
        return data


def _checked(member: tarfile.TarInfo, found: dict[str, Path], place: str) -> str | None:
    """Return the path of a file below the directory, None for a directory."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or "\0" in member.name:
        raise _refused(place, f"the path {member.name!r}", "paths that stay below one directory")
    if member.isdir():
        return None
    if not member.isreg():
        kind = "link" if member.issym() or member.islnk() else "special file"
        raise _refused(place, f"{member.name!r}, a {kind}", "files and directories only")
    name = path.as_posix()
    if name in found or name == ".":
        raise _refused(place, f"{member.name!r} twice", "each file once")
    return name


def _refused(place: str, found: str, expected: str) -> PrebuiltError:
    return PrebuiltError(
        Finding(place, found, expected, "do not use it; --no-prebuilt builds"),
        "the archive is not unpacked",
    )
