"""The public interface: the names of qola.fmha."""

from __future__ import annotations

import pytest

from qola_lab import fmha


@pytest.mark.parametrize("name", fmha.__all__)
def test_every_public_name_exists(name: str) -> None:
    """Prevents: a documented name that cannot be imported."""
    assert getattr(fmha, name) is not None


def test_other_names_are_refused() -> None:
    """Prevents: a misspelt name that is imported as a module."""
    with pytest.raises(AttributeError, match="nothing"):
        fmha.nothing  # noqa: B018
