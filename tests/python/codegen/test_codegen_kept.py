"""Entries of the cache of answers that are damaged, or cannot be kept."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest

from qola.codegen import kept
from tests.python.folders import write


@pytest.mark.parametrize("damage", ["empty", "short", "other", "a bomb", "a directory", "a link"])
def test_a_damaged_entry_is_made_anew(tmp_path: Path, damage: str) -> None:
    """Prevents: a traceback for an entry that a full disk or somebody cut; one never replaced."""
    kept.put(tmp_path, "ab", b"content")
    entry = tmp_path / "ab"
    data = entry.read_bytes()
    entry.unlink()
    packed = zlib.compress(bytes(kept.LIMIT + 1))
    bomb = hashlib.sha256(b"ab" + packed).digest() + packed
    if damage == "a directory":
        write(entry, {"in": "it"})
    elif damage == "a link":
        entry.symlink_to("ab")
    else:
        damaged = {"empty": b"", "short": data[:40], "other": data[:-1] + b"x", "a bomb": bomb}
        entry.write_bytes(damaged[damage])
    assert kept.get(tmp_path, "ab") is None
    kept.put(tmp_path, "ab", b"content")
    assert kept.get(tmp_path, "ab") == b"content"


def test_a_cache_that_leads_nowhere(tmp_path: Path) -> None:
    """Prevents: a traceback of Python's for a link to itself, where nothing need be kept."""
    (tmp_path / "qola").symlink_to("qola")
    kept.put(tmp_path / "qola", "ab", b"nowhere")
    assert kept.get(tmp_path / "qola", "ab") is None
