"""Finds the code objects in a built file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qola.code_object.offload import COMPRESSED, MAGIC, arch_of, read_bundle

#: The header of a compressed bundle has its version and the number of zstd.
_BUNDLE = re.compile(re.escape(MAGIC) + b"|" + COMPRESSED + rb"[\x02\x03]\x00\x01\x00")


def code_objects(data: bytes | bytearray) -> Iterator[tuple[str, bytes]]:
    """Yield arch and bytes of the code objects that a library or a pack contains."""
    for match in _BUNDLE.finditer(data):
        for target, code in read_bundle(memoryview(data)[match.start() :]):
            yield arch_of(target), bytes(code)
