"""Writes and reads files below a directory, and runs git."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from qola_base.files import write_if_changed


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a directory, and return it."""
    for name, content in files.items():
        write_if_changed(root / name, content)
    return root


def read(root: Path) -> dict[str, bytes]:
    """Return the content of all files below a directory, by relative path."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def git(directory: Path, *args: str) -> str:
    """Run git in a directory, independently of the environment's settings; return its output."""
    if not shutil.which("git"):
        pytest.skip("needs git")
    settings = ("user.name=t", "user.email=t@t.invalid", "protocol.file.allow=always")
    command = ["git", *(word for setting in settings for word in ("-c", setting)), *args]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    run = subprocess.run(
        command, cwd=directory, env=environ, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()
