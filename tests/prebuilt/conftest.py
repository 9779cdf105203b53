"""Fixtures of the tests of prebuilt bundles."""

from __future__ import annotations

from tests.prebuilt.users import user

__all__ = ["user"]
