"""Reading files of other users: reads do not block, and have a size limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qola_base.files import UnfitFileError, bounded_bytes


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
