"""Fixtures of the planner's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree


@pytest.fixture(scope="session")
def tree(aiter_tree: Path) -> AiterTree:
    """Return the real AITER tree."""
    return read_tree(aiter_tree)
