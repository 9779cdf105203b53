"""Digests, bounded reads, and atomic writes of files."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from qola_base.system_errors import path_text

ASIDE = ".qola-"
"""Prefix of incomplete files."""

_SCRATCH = f"{ASIDE}unfinished-"


def sha256_of_text(text: str) -> str:
    """Return the digest of a text in UTF-8: 64 hexadecimal digits of sha256."""
    # Names of files may have bytes outside the locale's encoding: hash the bytes.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def sha256_of_json(value: object) -> str:
    """Return the digest of a JSON value, written with sorted keys and without spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_of_text(text)


def sha256_of(path: Path) -> str:
    """Return the digest of a file; raise OSError if it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def lossy_text(path: Path) -> str:
    """Return a foreign text, with replacement characters for bytes that are not UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")


class UnfitFileError(Exception):
    """A path that exists, but is not a regular file or is too long."""


def check_regular(path: Path) -> None:
    """Refuse a file whose read could block or never end.

    Raises:
        OSError: the file does not exist, or is a directory.
        UnfitFileError: it is a FIFO or a device.
    """
    _check_mode(os.stat(path).st_mode, path)


def _check_mode(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise UnfitFileError("a FIFO or a device, not a regular file")


def bounded_bytes(path: Path, limit: int) -> bytes:
    """Return a file's content; refuse a FIFO or a device without waiting.

    Args:
        limit: the maximum number of bytes.

    Raises:
        OSError: it cannot be opened or read.
        UnfitFileError: it is not a regular file, has more bytes, or has an impossible name.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte, or a surrogate that stands for nothing
        raise UnfitFileError(f"a name that no file can have: {error}") from None
    try:
        _check_mode(os.fstat(descriptor).st_mode, path)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise UnfitFileError(f"more than {limit // 1024} KiB")
    return data


@contextmanager
def writing(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Name the file in the OSError of a write: Python omits it if the disk is full.

    Args:
        aside: the temporary file that is renamed to it.
    """
    try:
        yield
    except OSError as error:
        # Two names: a copy or a rename failed.
        if error.filename2 is not None or path_text(error.filename) in ("", str(aside)):
            error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block succeeds, and is removed when it fails.

    Creates missing directories.

    Raises:
        OSError: it cannot be written; the previous file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Short, because names of kernels are nearly as long as a file system allows.
    aside = path.parent / f"{ASIDE}{secrets.token_hex(8)}"
    try:
        with writing(path, aside):
            with aside.open("xb") as file:
                yield file
            os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """Create a temporary directory in `place`, and remove those of killed processes.

    Raises:
        OSError: it cannot be created.
    """
    with ExitStack() as stack:
        with _locked(place, fcntl.LOCK_EX):
            for left in place.glob(f"{_SCRATCH}*"):
                # A running process holds the lock of its directory.
                with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB) as unused:
                    if unused:
                        shutil.rmtree(left, ignore_errors=True)
            made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=place))
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            stack.enter_context(_locked(made, fcntl.LOCK_EX))
        yield made


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[bool]:
    """Lock a directory for the block; yield False if that fails."""
    with ExitStack() as stack:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, how)
        except OSError:
            yield False
        else:
            yield True


def write_if_changed(path: Path, content: str | bytes) -> str:
    """Write a file, unless it has this content already, and keep its time stamp then.

    Creates missing directories, writes text as UTF-8, and returns the content's sha256.

    Raises:
        OSError: it cannot be written; the previous file is unchanged.
    """
    # "surrogateescape": names of files may have bytes that are not UTF-8.
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        with whole(path) as file:
            file.write(data)
    return hashlib.sha256(data).hexdigest()
