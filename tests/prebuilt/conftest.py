"""Fixtures of the tests of prebuilt bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prebuilt.users import User, make_user


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """A user whose bundle is published and signed by key k."""
    with make_user(tmp_path, monkeypatch, capsys) as new_user:
        yield new_user
