"""Digests, in the one form qola writes them; files that change only with their content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def sha256_of_text(text: str) -> str:
    """Return the digest of a text in UTF-8: 64 hexadecimal digits of sha256."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_of_json(value: object) -> str:
    """Return the digest of data as JSON, keys sorted, no spaces: however it is laid out."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256_of_text(text)


def sha256_of(path: Path) -> str:
    """Return the digest of a file; raise OSError where it cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def lossy_text(path: Path) -> str:
    """Return a text of somebody else's, with a mark for what is not UTF-8: it is only read in."""
    return path.read_text(encoding="utf-8", errors="replace")


def write_if_changed(path: Path, content: str | bytes) -> str:
    """Write a file, unless it holds just that: an unchanged plan changes no time stamp.

    Missing directories are made, text is written in UTF-8. Return the content's sha256.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
