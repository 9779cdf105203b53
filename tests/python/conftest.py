"""What the Python tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TREE_VARIABLE = "QOLA_TEST_AITER_TREE"


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Return the root of this repository (of the runfiles, under Bazel)."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def aiter_tree() -> Path:
    """Return the root of a real AITER source tree: the folder that holds ``aiter/``."""
    value = os.environ.get(TREE_VARIABLE)
    if not value:
        pytest.skip(f"needs a real AITER tree: set {TREE_VARIABLE} to its root")
    tree = Path(value).resolve()
    # A wrong path is a mistake to fix, not a reason to skip half of the tests.
    assert (tree / "aiter/jit/optCompilerConfig.json").is_file(), f"{TREE_VARIABLE}={value}"
    return tree
