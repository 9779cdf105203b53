"""Operations without executable pseudocode, compared with results computed by hand."""

from __future__ import annotations

import pytest

from gfxemu.tests.hand_computed import CASES
from gfxemu.tests.machines import ENGINES, in_engine


@ENGINES
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, engine: str) -> None:
    """Prevents: an operation that reads, computes or writes wrong values in one of the engines."""
    with in_engine(engine):
        CASES[name](name)
