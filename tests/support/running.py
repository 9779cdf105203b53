"""Runs programs, and captures what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, whatever its exit code; `options` are those of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def output_of(command: Sequence[str | Path], **options: Any) -> str:
    """Run a program that must succeed, and return its standard output."""
    result = run(command, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
