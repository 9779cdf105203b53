"""Finds code objects in a built file, without anything of qola's."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


def code_objects(data: bytes) -> Iterator[bytes]:
    """Yield the code objects that a library or a pack holds."""
    for match in re.finditer(re.escape(_BUNDLE), data):
        bundle = data[match.start() :]
        (count,) = struct.unpack_from("<Q", bundle, len(_BUNDLE))
        at = len(_BUNDLE) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", bundle, at)
            if not bundle[at + 24 : at + 24 + length].startswith(b"host-"):
                yield bundle[offset : offset + size]
            at += 24 + length
