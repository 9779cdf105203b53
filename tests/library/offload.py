"""Finds the code objects in a built file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qola.code_object.offload import MAGIC, arch_of, read_bundle


def code_objects(data: bytes | bytearray) -> Iterator[tuple[str, bytes]]:
    """Yield arch and bytes of the code objects that a library or a pack contains."""
    for match in re.finditer(re.escape(MAGIC), data):
        for target, code in read_bundle(memoryview(data)[match.start() :]):
            yield arch_of(target), bytes(code)
