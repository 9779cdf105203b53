"""Digests, in the one form qola writes them; files that are whole, or as they were before."""

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

from qola.errors import Finding, QolaError

ASIDE = ".qola-"
"""How names of files begin that are not whole yet."""

_SCRATCH = f"{ASIDE}unfinished-"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FIXES = {
    **dict.fromkeys(_FULL, "df -h and df -i of that directory tell what is used up; free some"),
    errno.EROFS: "make it writable for this user",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "ls -ld of it, and of what is above it, tells whose it is; make it readable, or writable "
        "where it is written, for this user",
    ),
    errno.ELOOP: "rm of the symbolic link that leads to itself",
}
_ELSEWHERE = (
    "another directory: --output-dir for results, QOLA_CACHE_HOME for what qola keeps, TMPDIR for "
    "what is temporary"
)


def sha256_of_text(text: str) -> str:
    """Return the digest of a text in UTF-8: 64 hexadecimal digits of sha256."""
    # A file's name may have bytes that are not in the locale's encoding, such as all but ASCII in
    # the C locale: the digest is that of the bytes.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def sha256_of_json(value: object) -> str:
    """Return the digest of data as JSON, keys sorted, no spaces: however it is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_of_text(text)


def sha256_of(path: Path) -> str:
    """Return the digest of a file; raise OSError where it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def lossy_text(path: Path) -> str:
    """Return a text of somebody else's, with a mark for what is not UTF-8: it is only read in."""
    return path.read_text(encoding="utf-8", errors="replace")


_NOT_REGULAR = "a FIFO or a device, not a regular file"


class UnfitFileError(Exception):
    """What is read is there, and is not a file to read, or too long."""


def check_regular(path: Path) -> None:
    """Refuse what a reader would wait for, or read without end.

    Raises:
        OSError: it is not there, or is a directory.
        UnfitFileError: it is a FIFO or a device.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise UnfitFileError(_NOT_REGULAR)


def bounded_bytes(path: Path, limit: int) -> bytes:
    """Return a file's content; never wait for a FIFO or a device, nor read it.

    Args:
        limit: the most bytes that it may have.

    Raises:
        OSError: it cannot be opened or read.
        UnfitFileError: it is not a regular file, has more bytes, or has an impossible name.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte, or a surrogate that stands for nothing
        raise UnfitFileError(f"a name that no file can have: {error}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise UnfitFileError(_NOT_REGULAR)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise UnfitFileError(too_long(limit))
    return data


def too_long(limit: int) -> str:
    """Say that a file has more than so many bytes."""
    return f"more than {limit // 1024} KiB"


@contextmanager
def writing(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Name a file in the OSError of a write to it: of a full disk, Python does not say which.

    Args:
        aside: what is renamed to it, which nobody finds afterwards.
    """
    try:
        yield
    except OSError as error:
        # With two names it is the error of a copy or of renaming.
        if error.filename2 is not None or _name(error.filename) in ("", str(aside)):
            error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well, and else is gone.

    Missing directories are made.

    Raises:
        OSError: it cannot be written; the file that was there is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # As short as can be: names of kernels are nearly as long as a name may be.
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
    """Make a directory in `place` that is gone after the block, and remove those of killed ones.

    Raises:
        OSError: it cannot be made.
    """
    with ExitStack() as stack:
        with _locked(place, fcntl.LOCK_EX):
            for left in place.glob(f"{_SCRATCH}*"):
                # Who works in one has it locked.
                with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB) as unused:
                    if unused:
                        shutil.rmtree(left, ignore_errors=True)
            made = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=place))
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            stack.enter_context(_locked(made, fcntl.LOCK_EX))
        yield made


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[bool]:
    """Lock a directory for the block; yield False where that cannot be."""
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
    """Write a file, unless it holds just that: an unchanged plan changes no time stamp.

    Missing directories are made, text is written in UTF-8. Return the content's sha256.

    Raises:
        OSError: it cannot be written; the file that was there is as it was.
    """
    # "surrogateescape": names of files may have bytes that are not UTF-8.
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        with whole(path) as file:
            file.write(data)
    return hashlib.sha256(data).hexdigest()


def system_error(error: Exception) -> QolaError | None:
    """Return the error to tell a user where the system refuses something; None for a fault of ours.

    It is a file that cannot be written or read, or memory, a process or a thread that is not given.
    """
    # Python says it of threads in no other way.
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if isinstance(error, MemoryError) or thread:
        return _limit_error("no further thread" if thread else "no memory left")
    if not isinstance(error, OSError):
        return None
    if error.errno in (errno.EAGAIN, errno.ENOMEM) and error.filename is None:
        return _limit_error(error.strerror or str(error))
    return disk_error(error)


def _limit_error(found: str) -> QolaError:
    expected = "memory, processes and threads for a few programs at once"
    fix = "ulimit -a tells this shell's limits; a container has limits of its own: memory, pids"
    return QolaError(Finding("this machine", found, expected, fix))


def disk_error(error: OSError) -> QolaError:
    """Return the error to tell a user where a file or directory cannot be written or read."""
    place = _name(error.filename2 or error.filename) or "standard output or a file"
    full = error.errno in _FULL
    expected = "room for what is written" if full else "a file or directory that qola can use"
    fix = _FIXES.get(error.errno or 0, "see what is there")
    words = error.strerror or str(error) or type(error).__name__
    return QolaError(Finding(place, words, expected, f"{fix}; or {_ELSEWHERE}"))


def _name(path: object) -> str:
    """Return the name in an OSError, "" for none; it is what the failing function was given."""
    return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
