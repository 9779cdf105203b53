"""Parts of a split bundle: the host part, and the packs of device code of each arch."""

from __future__ import annotations

import re

HOST = "host"
"""The part without packs; the others are named by archs."""

_PACK = re.compile(r"lib/[^/]+-(gfx[0-9a-f]+)\.qpack")


def part_of(path: str) -> str:
    """Return the part that has a file of a bundle."""
    match = _PACK.fullmatch(path)
    return match[1] if match else HOST


def has_file(part: str, path: str) -> bool:
    """Return whether a part has a file; "" stands for the whole bundle.

    Each part has the licenses of its code.
    """
    return part in ("", part_of(path)) or path.startswith("licenses/")
