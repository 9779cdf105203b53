"""What qola writes on a disk that is full, has no inodes left, or is read-only."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qola.errors import QolaError
from qola.files import whole, write_if_changed
from qola.rule_main import run_main
from qola.system_errors import disk_error
from tests.conftest import Disk
from tests.support.folders import read


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """Let no file of this process be larger than some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_too_large(tmp_path: Path) -> None:
    """Prevents: half a file where a whole one was; an error that names no file."""
    path = tmp_path / "a" / "file"
    write_if_changed(path, "before")
    with small_files(1000), pytest.raises(OSError, match="File too large") as caught:
        write_if_changed(path, "x" * 2000)
    assert caught.value.filename == str(path)
    assert read(tmp_path) == {"a/file": b"before"}


def test_a_full_disk(disk: Disk) -> None:
    """Prevents: half a file where a whole one was; an error that names no file and no remedy."""
    place = disk("size=64k")
    write_if_changed(place / "file", "before")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", bytes(200_000))
    told = str(disk_error(caught.value))
    for words in (f"error: {place}/file", "No space left", "df -h", "QOLA_CACHE_HOME", "TMPDIR"):
        assert words in told
    assert read(place) == {"file": b"before"}


def test_no_inodes(disk: Disk) -> None:
    """Prevents: a traceback on a disk with room, and with as many files as it can have."""
    place = disk("nr_inodes=3")
    write_if_changed(place / "file", "before")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "a/b/c", "x")
    assert "df -i" in str(disk_error(caught.value))
    # There is none for the one beside it, either.
    (place / "a").exists() or write_if_changed(place / "last", "x")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", "after")
    assert caught.value.filename == str(place / "file")
    assert (place / "file").read_text() == "before"


def test_read_only(disk: Disk) -> None:
    """Prevents: a traceback for a disk that nobody may write to."""
    place = disk("size=1m")
    write_if_changed(place / "file", "before")
    disk("ro")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", "after")
    told = str(disk_error(caught.value))
    assert f"error: {place}/file" in told
    assert "Read-only file system" in told
    assert "make it writable" in told
    disk("rw")


def test_a_reader_in_the_middle(tmp_path: Path) -> None:
    """Prevents: a file that is half there while it is written, or when the writer is stopped."""
    (tmp_path / "file").write_text("before")

    def write() -> None:
        with whole(tmp_path / "file") as file:
            file.write(b"after")
            file.flush()
            assert (tmp_path / "file").read_text() == "before"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert read(tmp_path) == {"file": b"before"}


def test_a_program_of_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a traceback in a build's output where a disk is full."""
    with small_files(1000):
        code = run_main(lambda: print(write_if_changed(tmp_path / "file", bytes(2000))))
    said = capsys.readouterr().err
    assert code == QolaError.exit_code
    assert said.startswith("qola: QolaError: ")
    assert f"{tmp_path}/file" in said
    assert not read(tmp_path)


def test_errors_of_all_kinds() -> None:
    """Prevents: a second error while the first is told."""
    copied = OSError(errno.EXDEV, "Invalid cross-device link", "a", None, "b")
    assert "error: b" in str(disk_error(copied))
    assert "rm of the symbolic link" in str(disk_error(OSError(errno.ELOOP, "Too many", "a")))
    for error in (OSError(), OSError("words"), OSError(5, "Input/output error", b"\xff")):
        assert "error: " in str(disk_error(error))
