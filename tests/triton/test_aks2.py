"""AOTriton's archives: as its own reader has them, and whatever else a file may hold."""

from __future__ import annotations

import json
import lzma
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from qola.errors import BundleError
from qola.triton.aks2 import Kernel, read, write

KERNELS = [
    Kernel("attn_fwd-Sig-F__fp16;;#F/P/CO/gfx942", 16384, 256, b"\x7fELF one"),
    Kernel("b", 0, 64, b""),
    Kernel("c" * 150, 65536, 512, bytes(range(256)) * 9),
]


def entry(name: bytes, offset: int, size: int, shared: int = 1, threads: int = 2) -> bytes:
    return struct.pack("<IIIII", shared, threads, offset, size, len(name)) + name


def archive(directory: bytes, codes: bytes, count: int, total: int | None = None) -> bytes:
    all_of_it = directory + codes
    head = struct.pack("<III", total or len(all_of_it), count, len(directory))
    return b"AKS2" + head + lzma.compress(all_of_it)


def test_written_and_read() -> None:
    """Prevents: an archive whose kernels are others than those that went in."""
    assert read(write(KERNELS), "a.aks2") == KERNELS
    assert write(KERNELS[::-1]) == write(KERNELS)
    assert read(write([]), "a.aks2") == []


def test_the_layout() -> None:
    """Prevents: a reader and a writer that are wrong alike: here the bytes are laid out by hand."""
    data = archive(entry(b"x\0", 2, 3, 7, 8) + entry(b"yz\0", 0, 2), b"abCDE", 2)
    found = [Kernel("x", 7, 8, b"CDE"), Kernel("yz", 1, 2, b"ab")]
    assert read(data, "a.aks2") == found
    in_order = archive(entry(b"x\0", 0, 3, 7, 8) + entry(b"yz\0", 3, 2), b"CDEab", 2)
    assert write(found) == in_order


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no AKS2"),
        (b"AKS1" + bytes(12), "no AKS2"),
        (b"AKS2" + struct.pack("<III", 2**32 - 1, 1, 30), "4294967295 bytes in all"),
        (b"AKS2" + struct.pack("<III", 30, 2**31, 30), "2147483648 kernels"),
        (b"AKS2" + struct.pack("<III", 30, 1, 31), "31 bytes of names"),
        (b"AKS2" + struct.pack("<III", 30, 1, 30) + b"no stream" * 9, "no xz stream"),
        (archive(entry(b"x\0", 0, 3), b"abc", 1, total=24), "announced"),
        (archive(entry(b"x\0", 0, 3), b"abc", 1, total=26), "announced"),
        (archive(entry(b"x\0", 0, 4), b"abc", 1), "beyond its end"),
        (archive(entry(b"x\0", 2**32 - 1, 1), b"abc", 1), "beyond its end"),
        (archive(entry(b"xy", 0, 3), b"abc", 1), "beyond its end"),
        (archive(entry(b"\xff\0", 0, 3), b"abc", 1), "not UTF-8"),
        (archive(entry(b"x\0", 0, 3) + b"more", b"abc", 1), "of another size"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    """Prevents: a traceback, endless memory or another kernel's code from a damaged archive."""
    with pytest.raises(BundleError) as caught:
        read(data, "a.aks2")
    assert words in caught.value.findings[0].found


def test_any_damage_is_refused_or_harmless() -> None:
    """Prevents: an exception that nobody expects, whatever bytes are changed."""
    rng = random.Random(4)
    whole = write(KERNELS)
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        try:
            read(bytes(data), "a.aks2")
        except BundleError:
            refused += 1
    assert refused > 300


def test_the_program(tmp_path: Path) -> None:
    """Prevents: a kernel's name that leads out of the directory; a round trip that changes code."""
    file = tmp_path / "a.aks2"
    file.write_bytes(write([*KERNELS, Kernel("../../x", 1, 64, b"code")]))
    program = [sys.executable, "-m", "qola.triton.aks2"]
    path = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([*program, "unpack", str(file), str(tmp_path / "out")], env=path, check=True)
    codes = sorted((tmp_path / "out").glob("*.hsaco"))
    assert len(codes) == 4
    assert {code.read_bytes() for code in codes} == {k.code for k in KERNELS} | {b"code"}
    (tmp_path / "k.hsaco").write_bytes(b"mine")
    told = {"num_warps": 4, "warp_size": 64, "shared": 5}
    (tmp_path / "k.json").write_text(json.dumps(told))
    command = [*program, "pack", str(file), f"name={tmp_path / 'k.hsaco'}"]
    subprocess.run(command, env=path, check=True)
    assert read(file.read_bytes(), "a.aks2") == [Kernel("name", 5, 256, b"mine")]
    file.write_bytes(b"AKS2")
    said = subprocess.run(
        [*program, "unpack", str(file), str(tmp_path / "out")],
        env=path,
        capture_output=True,
        check=False,
    )
    assert b"not an AKS2 archive" in said.stderr
