"""Runs a test file in the Python with PyTorch, which can differ from Bazel's Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

FILE = os.environ["QOLA_TEST_FILE"]
PYTHON = os.environ.get("QOLA_TORCH") or os.environ.get("QOLA_PYTHON") or "python3"
_PATHS = ("QOLA_TEST_FAKE_HIP", "QOLA_TEST_WHEEL")


def test_in_the_python_with_torch(tmp_path: Path) -> None:
    """Prevents: attention, gradients or operators of wheels differ from PyTorch's."""
    paths = {name: str(Path(os.environ[name]).absolute()) for name in _PATHS if name in os.environ}
    # Excludes the packages of Bazel's Python.
    env = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path.cwd()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TEST_SRCDIR": os.environ["TEST_SRCDIR"],
        **paths,
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PYTHON, *arguments], env=env, capture_output=True, text=True, check=False
        )

    imports = run("-c", "import hypothesis, msgpack, numpy, pytest, sympy, tinygrad, torch")
    if imports.returncode:
        missing = imports.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"{PYTHON} needs third_party/python/verify.txt and dev.txt: {missing}")
    tests = run("-m", "pytest", "-q", f"--basetemp={tmp_path / 'of-torch'}", FILE)
    assert tests.returncode == 0, tests.stdout + tests.stderr
