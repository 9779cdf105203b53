"""Digests, in the one form qola writes them: 64 hexadecimal digits of sha256."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of_text(text: str) -> str:
    """Digest of a text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_of(path: Path) -> str:
    """Digest of a file.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
