"""Runs programs in the Python whose PyTorch the modules require."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gfxemu.fake_hip import RUNTIME
from tests.support import running

FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
PYTHON = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"


def link(directory: Path, files: Iterable[Path] = ()) -> Path:
    """Link files, and HIP's runtime without a GPU, into a directory, and return it."""
    for name, file in {RUNTIME: FAKE, **{file.name: file for file in files}}.items():
        (directory / name).symlink_to(file)
    return directory


def run(directory: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program that imports modules of a directory."""
    paths = {"PYTHONPATH": str(directory), "LD_LIBRARY_PATH": str(directory)}
    env = {"PATH": os.environ["PATH"], **paths, **variables}
    return running.run([PYTHON, "-c", code], env=env)


def output_of(directory: Path, code: str) -> str:
    """Run a program that must succeed, and return its output."""
    result = run(directory, code)
    assert result.returncode == 0, result.stderr
    return result.stdout


def exported_symbols(library: Path) -> list[str]:
    """Return the names of the dynamic symbols that a library defines."""
    command = ["nm", "--dynamic", "--defined-only", "--format=just-symbols", str(library)]
    return running.output_of(command).split()
