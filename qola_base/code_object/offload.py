"""Reads offload bundles, in which clang joins the code objects of several targets."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zstandard

from qola_base.code_object.elf import Elf

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
"""The first bytes of an uncompressed bundle."""

COMPRESSED_START = rb"CCOB[\x02\x03]\x00\x01\x00"
"""Regular expression of the start of a bundle compressed with zstd: magic, version, method."""

_COMPRESSED = b"CCOB"
_ZSTD = 1
#: Header of a compressed bundle by version: magic, version, method, bytes in all, bytes
#: uncompressed, hash (llvm/lib/Object/OffloadBundle.cpp).
_HEADERS = {2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}
#: More than any batch has, and than zstd makes of device code: a hostile header must not reserve
#: all memory.
_MOST_BYTES, _MOST_RATIO = 1 << 30, 1000


_WRAPPER = struct.Struct("<IIQQ")
"""Entry of .hipFatBinSegment, which registers a bundle: magic, version, pointer, 0."""


def registered_bundles(elf: Elf) -> Iterator[tuple[int, memoryview]]:
    """Yield address and content of each bundle that a library registers, in the file's order.

    The content ends with the section, and more bundles may follow. Raises as the methods of `Elf`.
    """
    code, segment = elf.section(".hip_fatbin"), elf.section(".hipFatBinSegment")
    if not code or not segment:
        return
    if code.size and not code.stored:
        raise ValueError("the host part of a split library, whose device code is in packs")
    addends = elf.addends()
    for wrapper in range(segment.address, segment.address + segment.size, _WRAPPER.size):
        _, _, pointer, _ = _WRAPPER.unpack_from(elf.at(wrapper))
        address = addends.get(wrapper + 8, pointer)
        yield address, elf.at(address)


def read_bundle(bundle: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yield target and bytes of each code object; ``hipv4-amdgcn-amd-amdhsa--gfx950`` is a target.

    The entry of the host, which has no bytes, is left out.

    Args:
        bundle: begins with a bundle, compressed or not; bytes after it are ignored.

    Raises:
        ValueError: not a bundle, or a target that is not ASCII.
        struct.error: the bundle ends too early.
    """
    if is_compressed(bundle):
        bundle = decompress_bundle(bundle)
    for target, offset, size in _entries(bundle):
        if not target.startswith("host-"):
            yield target, bundle[offset : offset + size]


def bundle_size(bundle: memoryview) -> int:
    """Return the bytes that a bundle, compressed or not, takes in its file.

    Raises:
        ValueError, struct.error: as `read_bundle` or `compressed_size`.
    """
    if is_compressed(bundle):
        return compressed_size(bundle)
    return max(offset + size for _, offset, size in _entries(bundle))


def _entries(bundle: memoryview) -> Iterator[tuple[str, int, int]]:
    """Yield target, offset and size of each entry of an uncompressed bundle."""
    if bytes(bundle[: len(MAGIC)]) != MAGIC:
        raise ValueError("device code in an unknown format")
    start = len(MAGIC) + 8
    (count,) = struct.unpack_from("<Q", bundle, len(MAGIC))
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, start)
        target = bytes(bundle[start + 24 : start + 24 + length]).decode("ascii")
        start += 24 + length
        yield target, offset, size


def is_compressed(bundle: memoryview) -> bool:
    """Whether a bundle is compressed, by whatever method."""
    return bytes(bundle[: len(_COMPRESSED)]) == _COMPRESSED


def compressed_size(bundle: memoryview) -> int:
    """Return the bytes that a compressed bundle takes in its file, header included.

    Raises:
        ValueError: the header is not one of a compressed bundle, or not possible.
        struct.error: the bundle ends too early.
    """
    return _header(bundle)[1]


def decompress_bundle(bundle: memoryview) -> memoryview:
    """Return the content of a compressed bundle: an uncompressed one.

    Raises:
        ValueError, struct.error: as `compressed_size`; zstd cannot read the content.
    """
    start, end, size = _header(bundle)
    try:
        # zstandard believes the size that the frame states, which may be hostile.
        with zstandard.ZstdDecompressor().stream_reader(bundle[start:end]) as reader:
            data = reader.read(size)
    except zstandard.ZstdError as error:
        raise ValueError(f"a compressed bundle that zstd cannot read: {error}") from None
    if len(data) != size:
        raise ValueError(f"a compressed bundle of {len(data)} bytes, not {size}")
    return memoryview(data)


def _header(bundle: memoryview) -> tuple[int, int, int]:
    """Return the sizes of a compressed bundle: of its header, in all, and uncompressed."""
    (version,) = struct.unpack_from("<H", bundle, len(_COMPRESSED))
    if version not in _HEADERS:
        raise ValueError(f"a compressed bundle of version {version}")
    header = _HEADERS[version]
    _, _, method, size, uncompressed, _ = header.unpack_from(bundle)
    if method != _ZSTD:
        raise ValueError(f"a bundle compressed by method {method}, not with zstd")
    most = min(_MOST_BYTES, _MOST_RATIO * size)
    if not header.size <= size <= len(bundle) or uncompressed > most:
        raise ValueError(f"a compressed bundle of {size} bytes, uncompressed {uncompressed}")
    return header.size, size, uncompressed


def arch_of(target: str) -> str:
    """Return the arch of a target: "gfx942" of ``amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-``.

    Triton writes ``amdgpu9.42-amd-amdhsa-unknown-gfx942``. Targets of a host have no arch.
    """
    name = target.partition(":")[0]
    start = name.find("gfx")
    return name[start:] if start >= 0 else name.rpartition("--")[2]
