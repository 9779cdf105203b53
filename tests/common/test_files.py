"""Files of other users, disks that are full or read-only, and systems without memory or threads."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Disk
from qola_base.errors import QolaError
from qola_base.files import UnfitFileError, bounded_bytes, whole, write_if_changed
from qola_base.rule_main import run_main
from qola_base.system_errors import disk_error, system_error
from tests.support.folders import read


def test_reads_are_bounded(tmp_path: Path) -> None:
    """Prevents: a blocking read of a FIFO, an endless read of a device, or exhausted memory."""
    file, fifo = tmp_path / "file", tmp_path / "fifo"
    file.write_bytes(b"x" * 2048)
    os.mkfifo(fifo)
    assert bounded_bytes(file, 2048) == b"x" * 2048
    for path, limit, message in (
        (file, 2047, "more than 1 KiB"),
        (fifo, 9, "not a regular file"),
        (Path("/dev/zero"), 9, "not a regular file"),
        (Path("a\0b"), 9, "no file can have"),
        (Path("\ud800"), 9, "no file can have"),
    ):
        with pytest.raises(UnfitFileError, match=message):
            bounded_bytes(path, limit)
    with pytest.raises(IsADirectoryError):
        bounded_bytes(tmp_path, 9)


@contextmanager
def limit_file_size(limit: int) -> Iterator[None]:
    """Limit the size of files that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_file_size_limit(tmp_path: Path) -> None:
    """Prevents: a complete file replaced by a partial one, or an error without a file name."""
    path = tmp_path / "a" / "file"
    write_if_changed(path, "before")
    with limit_file_size(1000), pytest.raises(OSError, match="File too large") as caught:
        write_if_changed(path, "x" * 2000)
    assert caught.value.filename == str(path)
    assert read(tmp_path) == {"a/file": b"before"}


def test_full_disk(disk: Disk) -> None:
    """Prevents: a partial file instead of a complete one, or an error without file name and fix."""
    place = disk("size=64k")
    write_if_changed(place / "file", "before")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", bytes(200_000))
    error_text = str(disk_error(caught.value))
    for expected in (f"error: {place}/file", "No space left", "df -h", "QOLA_CACHE_HOME", "TMPDIR"):
        assert expected in error_text
    assert read(place) == {"file": b"before"}


def test_no_inodes(disk: Disk) -> None:
    """Prevents: a traceback on a disk that has space and no free inodes."""
    place = disk("nr_inodes=3")
    write_if_changed(place / "file", "before")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "a/b/c", "x")
    assert "df -i" in str(disk_error(caught.value))
    # The temporary file next to the target needs an inode, too.
    (place / "a").exists() or write_if_changed(place / "last", "x")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", "after")
    assert caught.value.filename == str(place / "file")
    assert (place / "file").read_text() == "before"


def test_read_only(disk: Disk) -> None:
    """Prevents: a traceback for a read-only disk."""
    place = disk("size=1m")
    write_if_changed(place / "file", "before")
    disk("ro")
    with pytest.raises(OSError) as caught:
        write_if_changed(place / "file", "after")
    error_text = str(disk_error(caught.value))
    assert f"error: {place}/file" in error_text
    assert "Read-only file system" in error_text
    assert "make it writable" in error_text
    disk("rw")


def test_files_are_replaced_atomically(tmp_path: Path) -> None:
    """Prevents: a reader that sees a partial file during a write, or after an interrupted write."""
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


def test_rule_program_on_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prevents: a traceback in a build's output if a disk is full."""
    with limit_file_size(1000):
        code = run_main(lambda: print(write_if_changed(tmp_path / "file", bytes(2000))))
    error_text = capsys.readouterr().err
    assert code == QolaError.exit_code
    assert error_text.startswith("qola: QolaError: ")
    assert f"{tmp_path}/file" in error_text
    assert not read(tmp_path)


def test_disk_error_accepts_any_os_error() -> None:
    """Prevents: a second error while qola formats the first one."""
    copied = OSError(errno.EXDEV, "Invalid cross-device link", "a", None, "b")
    assert "error: b" in str(disk_error(copied))
    assert "rm of the symbolic link" in str(disk_error(OSError(errno.ELOOP, "Too many", "a")))
    for error in (OSError(), OSError("words"), OSError(5, "Input/output error", b"\xff")):
        assert "error: " in str(disk_error(error))


#: Limits the address space to 2 MiB more than the process uses, and then runs the work.
_PROGRAM = """
import resource, sys, threading
from qola_base.rule_main import run_main
pages = int(open("/proc/self/statm").read().split()[0])
most = (pages << 12) + (2 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
sys.exit(run_main(lambda: {}))
"""


@pytest.mark.parametrize(
    ("work", "found"),
    [
        ("threading.Thread(target=int).start()", "no further thread"),
        ("bytearray(1 << 30)", "no memory left"),
    ],
)
def test_exhausted_resources(work: str, found: str) -> None:
    """Prevents: a traceback in a container with few threads or little memory."""
    root = Path(sys.modules["qola"].__path__[0]).parent
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(work)],
        env={"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])},
        text=True,
        capture_output=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, ""), run.stderr
    assert "Traceback" not in run.stderr
    assert f"found     {found}" in run.stderr
    assert "pids" in run.stderr


def test_exhausted_processes() -> None:
    """Prevents: an error that blames a file or disk if the system cannot start a process."""
    without_file = system_error(BlockingIOError(11, "Resource temporarily unavailable"))
    assert "error: this machine" in str(without_file)
    assert "a container has its own limits" in str(without_file)
    with_file = system_error(BlockingIOError(11, "Resource temporarily unavailable", "/dev/fuse"))
    assert "error: /dev/fuse" in str(with_file)


def test_bugs_are_not_system_errors() -> None:
    """Prevents: a bug of qola reported as an error of the machine."""
    for error in (RuntimeError("dictionary changed size"), RecursionError(), KeyError("a")):
        assert system_error(error) is None
