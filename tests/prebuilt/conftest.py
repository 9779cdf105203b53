"""What the tests of prebuilt bundles share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.prebuilt.users import User, a_user


@pytest.fixture
def user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[User]:
    """A user, and a bundle of what they want, signed by key k."""
    with a_user(tmp_path, monkeypatch, capsys) as someone:
        yield someone
