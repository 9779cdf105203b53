"""AOTriton's archives of code objects (AKS2), read and written.

    "AKS2", u32 bytes unpacked, u32 number of kernels, u32 bytes of the directory
    one xz stream: for each kernel u32 LDS bytes, u32 threads, u32 offset behind the directory,
    u32 size, u32 length of the name with a 0, the name, 0; then the code objects

Numbers have their lowest byte first. AOTriton gathers them in zip files below aotriton.images/.

    python -m qola.triton.aks2 unpack FILE.aks2 DIRECTORY     # NAME.hsaco, NAME.json
    python -m qola.triton.aks2 pack FILE.aks2 NAME=CODE.hsaco...
"""

from __future__ import annotations

import argparse
import json
import lzma
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qola.errors import BundleError, Finding
from qola.files import bounded_bytes, write_if_changed
from qola.rule_main import run_main

MOST = 1 << 30
"""The most bytes of an archive, packed or not."""

_HEAD = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<IIIII")
_MAGIC = b"AKS2"


@dataclass(frozen=True)
class Kernel:
    """A code object in an archive.

    Attributes:
        shared: bytes of dynamic LDS.
        threads: of a workgroup.
        code: empty where AOTriton's compile took too long.
    """

    name: str
    shared: int
    threads: int
    code: bytes


def read(data: bytes, place: str) -> list[Kernel]:
    """Return the kernels of an archive, in its order.

    Args:
        place: what an error calls it.

    Raises:
        BundleError: it is no archive, is damaged, or says of itself what is not so.
    """

    def wrong(found: str) -> BundleError:
        return BundleError(Finding(place, found, "a whole AKS2 archive"), "not an AKS2 archive")

    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise wrong("no AKS2 at its beginning")
    _, total, count, directory = _HEAD.unpack_from(data)
    if directory > total or total > MOST or count * (_ENTRY.size + 1) > directory:
        raise wrong(f"{count} kernels, {directory} bytes of names, {total} bytes in all")
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=256 << 20)
    try:
        # One more, to see that it ends there.
        unpacked = stream.decompress(data[_HEAD.size :], max_length=total + 1)
    except lzma.LZMAError as error:
        raise wrong(f"no xz stream behind its head: {error}") from None
    if len(unpacked) != total or not stream.eof:
        raise wrong(
            f"{len(unpacked)} bytes unpacked or more, {total} announced, or no end behind them"
        )
    found = []
    at = 0
    for _ in range(count):
        if at + _ENTRY.size > directory:
            raise wrong("a directory that ends too early")
        shared, threads, offset, size, length = _ENTRY.unpack_from(unpacked, at)
        at += _ENTRY.size
        name = unpacked[at : at + length]
        at += length
        start = directory + offset
        if at > directory or name[-1:] != b"\0" or start + size > total:
            raise wrong("an entry beyond its end")
        try:
            text = name[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise wrong("a name that is not UTF-8") from None
        found.append(Kernel(text, shared, threads, unpacked[start : start + size]))
    if at != directory:
        raise wrong("a directory of another size")
    return found


def write(kernels: Iterable[Kernel]) -> bytes:
    """Return the archive of some kernels: the same bytes for the same kernels."""
    directory, codes = b"", b""
    ordered = sorted(kernels, key=lambda kernel: kernel.name)
    for kernel in ordered:
        name = kernel.name.encode("utf-8") + b"\0"
        directory += _ENTRY.pack(
            kernel.shared, kernel.threads, len(codes), len(kernel.code), len(name)
        )
        directory += name
        codes += kernel.code
    head = _HEAD.pack(_MAGIC, len(directory) + len(codes), len(ordered), len(directory))
    return head + lzma.compress(directory + codes, lzma.FORMAT_XZ)


def _file_name(name: str, place: str) -> str:
    """Return a kernel's name as one of a file: AOTriton's have characters that lead elsewhere."""
    plain = "".join(c if c.isalnum() or c in "_-.=," else "_" for c in name)
    if not plain.strip("."):
        raise BundleError(Finding(place, repr(name), "names of kernels"))
    return plain[:200]


def _unpack(file: Path, directory: Path) -> None:
    for number, kernel in enumerate(read(bounded_bytes(file, MOST), str(file))):
        name = f"{number}-{_file_name(kernel.name, str(file))}"
        told = {"name": kernel.name, "shared": kernel.shared, "threads": kernel.threads}
        write_if_changed(directory / f"{name}.hsaco", kernel.code)
        write_if_changed(directory / f"{name}.json", json.dumps(told, indent=1) + "\n")


def _pack(file: Path, operands: Iterable[str]) -> None:
    kernels = []
    for operand in operands:
        name, _, path = operand.partition("=")
        if not path:
            raise BundleError(Finding(operand, "no file", "NAME=FILE.hsaco"))
        told = json.loads(Path(path).with_suffix(".json").read_text("utf-8"))
        # What was unpacked has the product alone.
        threads = told.get("threads") or told["num_warps"] * told["warp_size"]
        kernels.append(Kernel(name, told["shared"], threads, Path(path).read_bytes()))
    write_if_changed(file, write(kernels))


def _work(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="qola.triton.aks2",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["unpack", "pack"])
    parser.add_argument("file", type=Path)
    parser.add_argument("operands", nargs="+")
    told = parser.parse_args(words)
    if told.command == "pack":
        _pack(told.file, told.operands)
    else:
        for directory in told.operands:
            _unpack(told.file, Path(directory))


if __name__ == "__main__":
    sys.exit(run_main(lambda: _work(sys.argv[1:])))
