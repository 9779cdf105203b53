"""File systems that are full, read-only or forbid loading, and files of other users.

Not in a sandbox, which has neither; what cannot be had here either is skipped with the reason.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.runtime.lazy import FILL, FILLED, SCALE, SCALED, Answer, Toy


def give_away(path: Path) -> None:
    """Make a file another user's."""
    try:
        os.chown(path, 4321, 4321)
    except OSError as error:
        pytest.skip(f"files cannot be given away here: {error}")


def test_others_entry(warm: Toy) -> None:
    """Prevents: a kernel that another user made."""
    give_away(warm.entry(SCALE))
    answer = warm.gets(SCALE)
    assert "is another user's (mode 0600, owner 4321); chown 0" in answer.errors
    assert warm.entry(SCALE).stat().st_uid == 0


def test_wrong_owner_of_the_root(warm: Toy) -> None:
    """Prevents: a finding about a cache of another user that is not shown."""
    give_away(warm.cache)
    result = warm.ends(1, "verify")
    assert f"{warm.cache} is another user's (mode 0700, owner 4321)" in result.stdout


def test_cache_below_another_users_directory(warm: Toy) -> None:
    """Prevents: a cache that the owner of a directory above it can exchange for another."""
    give_away(warm.path)
    answer = warm.gets(SCALE)
    assert f"{warm.path} is another user's (mode 0755, owner 4321)" in answer.errors
    assert "not kept" in answer.errors


def mounted(toy: Toy, options: str) -> Answer:
    """The answer of a process that has a file system of its own as its cache."""
    toy.cache.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o {options} none "$QOLA_CACHE" && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, "sh"]
    command += toy.command(str(toy.row(SCALE)), str(toy.row(FILL)))
    process = subprocess.run(
        command, env=toy.environment(), capture_output=True, text=True, check=False
    )
    if "unshare" in process.stderr or "mount:" in process.stderr:
        pytest.skip(f"no file systems can be mounted here: {process.stderr}")
    assert process.returncode == 0, process.stderr
    return Answer(tuple(process.stdout.splitlines()), process.stderr)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("mode=0700,size=16k", "no room for the compile"),
        ("mode=0700,size=40k", "no room for the compile"),
        ("mode=0700,nr_inodes=3", "No space left on device"),
        ("mode=0700,ro", "Read-only file system"),
    ],
)
def test_full_or_read_only(toy: Toy, options: str, why: str) -> None:
    """Prevents: a full or read-only disk that costs the kernel."""
    answer = mounted(toy, options)
    assert answer.values == [SCALED, FILLED]
    assert answer.errors.count("kernels compiled now are not kept") == 1
    assert why in answer.errors


def test_noexec(toy: Toy) -> None:
    """Prevents: a file system that forbids loading, and costs the kernels that it keeps."""
    answer = mounted(toy, "mode=0700,noexec")
    assert answer.values == [SCALED, FILLED]
    assert "not kept" not in answer.errors
