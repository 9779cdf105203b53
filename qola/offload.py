"""Bundles in which clang puts code objects beside each other: one for each target."""

from __future__ import annotations

import struct
from collections.abc import Iterator

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
"""What a bundle begins with, and one whose content is compressed."""


def entries(bundle: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield the target of each entry, such as ``hipv4-amdgcn-amd-amdhsa--gfx950``, and its bytes.

    One for the host has none, and a target that begins with ``host-``.

    Raises:
        ValueError: it is not an uncompressed bundle, or a target is not ASCII.
        struct.error: it ends too early.
    """
    at = len(MAGIC) + 8
    if bytes(bundle[: len(MAGIC)]) != MAGIC:
        raise ValueError("device code in a form that is not known")
    (count,) = struct.unpack_from("<Q", bundle, len(MAGIC))
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        target = bytes(bundle[at + 24 : at + 24 + length]).decode("ascii")
        at += 24 + length
        yield target, bundle[offset : offset + size]
