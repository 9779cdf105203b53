"""Hostile packs, read by the checks of a bundle."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from qola.bundle.pack_files import MAGIC, kernels_of_pack, labels_of_pack
from qola.common.packs import MAX_TABLE, PackedCode, pack
from qola_base.errors import BundleError
from tests.fuzz.fuzzing import fuzz


def make_pack(rng: random.Random) -> bytes:
    """Return a pack whose numbers are often wrong."""

    def number(correct: int, bits: int) -> int:
        wrong = (0, 1, correct - 1, correct + 1, 2**bits - 1, 2 ** (bits - 1), 10**9)
        return correct if rng.random() < 0.7 else rng.choice(wrong) % 2**bits

    count = rng.randint(0, 5)
    names = "".join(f"k{n}\tgfx950\tx{rng.choice(chr(10) * 9 + chr(0))}" for n in range(count))
    begin = 16 + 48 * count + len(names)
    rows = b"".join(
        struct.pack("<32sQQ", b"", number(begin + 10 * n, 64), number(10, 64)) for n in range(count)
    )
    head = struct.pack("<8sII", MAGIC, number(count, 32), number(len(names), 32))
    data = head + rows + names.encode() + b"library..." * count
    return data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data


def test_table_of_a_sparse_file(tmp_path: Path) -> None:
    """Prevents: a table of 1 GiB that is read before it is refused."""
    file = tmp_path / "a.qpack"
    for count, labels in ((0, MAX_TABLE), (MAX_TABLE // 48 + 1, 0), (2**32 - 1, 2**32 - 1)):
        file.write_bytes(struct.pack("<8sII", MAGIC, count, labels))
        os.truncate(file, 1 << 40)
        tracemalloc.start()
        with pytest.raises(BundleError, match="at most 16 MiB"):
            labels_of_pack(file, "a.qpack")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()
    many = (PackedCode(f"{n:>04000}", "gfx950", "", b"%d" % n) for n in range(4200))
    with pytest.raises(BundleError, match="4200 kernels"):
        pack(many)


def test_packs(tmp_path: Path) -> None:
    """Prevents: a reader allocates or reads sizes that a pack only claims."""
    file = tmp_path / "a.qpack"

    def take(data: bytes) -> None:
        file.write_bytes(data)
        found = list(kernels_of_pack(file, "a.qpack"))
        assert sum(len(library) for _, library in found) <= len(data)

    fuzz(make_pack, take)
