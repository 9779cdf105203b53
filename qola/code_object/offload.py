"""Reads offload bundles, in which clang joins the code objects of several targets."""

from __future__ import annotations

import struct
from collections.abc import Iterator

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
"""The first bytes of a bundle, and of a bundle with compressed content."""


def read_bundle(bundle: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield the target of each code object, such as ``hipv4-amdgcn-amd-amdhsa--gfx950``, and bytes.

    The entry of the host, which has no bytes, is left out.

    Raises:
        ValueError: not an uncompressed bundle, or a target that is not ASCII.
        struct.error: the bundle ends too early.
    """
    if bytes(bundle[: len(MAGIC)]) != MAGIC:
        raise ValueError("device code in an unknown format")
    start = len(MAGIC) + 8
    (count,) = struct.unpack_from("<Q", bundle, len(MAGIC))
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, start)
        target = bytes(bundle[start + 24 : start + 24 + length]).decode("ascii")
        start += 24 + length
        if not target.startswith("host-"):
            yield target, bundle[offset : offset + size]


def arch_of(target: str) -> str:
    """Return the arch of a target: "gfx942" of ``amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-``.

    Triton writes ``amdgpu9.42-amd-amdhsa-unknown-gfx942``. Targets of a host have no arch.
    """
    name = target.partition(":")[0]
    start = name.find("gfx")
    return name[start:] if start >= 0 else name.rpartition("--")[2]
