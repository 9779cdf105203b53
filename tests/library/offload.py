"""Find the code objects in a library or a pack."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import zstandard

from qola_base.code_object.offload import (
    COMPRESSED_START,
    MAGIC,
    arch_of,
    compressed_size,
    decompress_bundle,
    read_bundle,
)

_BUNDLE = re.compile(re.escape(MAGIC) + b"|" + COMPRESSED_START)


def code_objects(data: bytes | bytearray) -> Iterator[tuple[str, bytes]]:
    """Yield arch and bytes of each code object in a library or a pack."""
    for match in _BUNDLE.finditer(data):
        for target, code in read_bundle(memoryview(data)[match.start() :]):
            yield arch_of(target), bytes(code)


def replace_code(data: bytearray, old: bytes, new: bytes) -> None:
    """Replace code in a compressed bundle of a library, without moving the bundle."""
    for match in _BUNDLE.finditer(bytes(data)):
        bundle = memoryview(bytes(data))[match.start() :]
        content = bytes(decompress_bundle(bundle))
        if old in content:
            best = zstandard.ZstdCompressionParameters.from_level(22, enable_ldm=True)
            packed = zstandard.ZstdCompressor(compression_params=best).compress(
                content.replace(old, new)
            )
            size = 24 + len(packed)
            assert size <= compressed_size(bundle), "no place"
            data[match.start() + 8 : match.start() + 12] = struct.pack("<I", size)
            data[match.start() + 24 : match.start() + size] = packed
            return
    raise ValueError("no bundle has the code")
