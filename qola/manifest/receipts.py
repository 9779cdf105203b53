"""Names of receipts: the profiles of CK's own dispatcher, and TransformerEngine's set."""

from __future__ import annotations

from collections.abc import Mapping

PROFILES: Mapping[str, int] = {
    "ck_default": 0,
    "ck_extended": 1,
    "flash_fwd": 2,
    "flash_bwd": 3,
    "pytorch": 4,
    "aiter_batch": 100,
    "aiter_group": 200,
    "aiter_bwd_batch": 300,
    "aiter_bwd_group": 400,
    "aiter_cpp": 600,
    "te": 700,
    "fp32_all": 800,
    "fp32_min": 801,
    "fp8_test": 888,
}
"""Receipts by the names that a manifest may have in place of CK's numbers."""

_NAMES = {number: name for name, number in PROFILES.items()}


def described(receipt: int) -> str:
    """Return a receipt as messages write it: ``700 (te)``."""
    name = _NAMES.get(receipt)
    return f"{receipt} ({name})" if name else str(receipt)
