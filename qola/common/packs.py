"""Writes packs in the format of runtime/lazy/pack.h; the key of a code is its digest."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from qola_base.errors import BundleError, Finding

#: From runtime/lazy: magic numbers of a pack and of the trailer of its entries, QOLA_KERNEL_ABI.
_PACK, _ENTRY, _ABI = b"QOLAPCK1", b"QOLAKRN1", 1
_ALIGNMENT = 16

MAX_TABLE = 16 << 20
"""Maximum bytes of a pack's header, rows and labels, as in runtime/lazy: 50,000 kernels."""


@dataclass(frozen=True)
class PackedCode:
    """Device code for a pack.

    Attributes:
        compiler: identity of the compiler, "" to record none.
    """

    name: str
    arch: str
    compiler: str
    code: bytes

    @property
    def key(self) -> str:
        """SHA-256 of the code in hexadecimal."""
        return hashlib.sha256(self.code).hexdigest()


def pack(codes: Iterable[PackedCode], alignment: int = _ALIGNMENT) -> bytes:
    """Return a pack. Its bytes do not depend on the order of `codes`, whose names differ.

    Args:
        alignment: of the codes in the file, a multiple of 16.

    Raises:
        BundleError: the table would be longer than readers accept.
    """
    by_key = {bytes.fromhex(code.key): code for code in sorted(codes, key=lambda c: c.name)}
    ordered = sorted(by_key.items())
    labels = "".join(f"{one.name}\t{one.arch}\t{one.compiler}\n" for _, one in ordered).encode()
    if _table_bytes(len(ordered), len(labels)) > MAX_TABLE:
        found = f"{len(ordered)} kernels, whose table has more than {MAX_TABLE >> 20} MiB"
        raise BundleError(Finding("a pack", found, "fewer kernels", "build several manifests"))
    table = struct.pack("<8sII", _PACK, len(ordered), len(labels))
    start = offset = _aligned(_table_bytes(len(ordered), len(labels)) + 32, alignment)
    body = []
    for key, one in ordered:
        entry = one.code + struct.pack("<8sII", _ENTRY, _ABI, 0) + key
        entry += hashlib.sha256(entry).digest()
        table += key + struct.pack("<QQ", offset, len(entry))
        body.append(entry.ljust(_aligned(len(entry), alignment), b"\0"))
        offset += len(body[-1])
    table += labels
    table += hashlib.sha256(table).digest()
    return b"".join([table.ljust(start, b"\0"), *body])


def _table_bytes(count: int, labels: int) -> int:
    """Return the bytes before the table's digest."""
    return 16 + 48 * count + labels


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
