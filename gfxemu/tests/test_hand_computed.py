"""Operations without executable pseudocode, compared with results computed by hand."""

from __future__ import annotations

import pytest

from gfxemu.tests.hand_computed import CASES


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Prevents: an operation that reads, computes or writes wrong values."""
    CASES[name](name)
