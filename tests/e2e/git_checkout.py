"""Check out files of other repositories with git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def check_out(directory: Path, remote: str, ref: str, commit: str = "FETCH_HEAD") -> None:
    """Fetch a ref into a new repository and check a commit out. Skip the test without network."""
    for command in (
        ("init", "-q"),
        ("fetch", "-q", "--depth=1", remote, ref),
        ("checkout", "-q", commit),
    ):
        run = subprocess.run(
            ["git", "-C", directory, *command], capture_output=True, text=True, check=False
        )
        if run.returncode:
            pytest.skip(f"no {remote}: {run.stderr}")
