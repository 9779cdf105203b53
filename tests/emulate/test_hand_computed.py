"""Operations without pseudocode that can be run, each held against a case computed by hand."""

from __future__ import annotations

import pytest

from tests.emulate.hand_computed import CASES


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Prevents: an operation that reads, computes or writes something else."""
    CASES[name](name)
