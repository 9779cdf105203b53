"""Splits of K and V: the decisions that the C++ of CK and of AITER makes, compiled, made here."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from qola.aiter.tree import read_tree
from qola.fmha.splits import splits, splits_of

#: Blocks, slots, most, blocks of columns or -1 for CK's, and what its C++ returns.
DECISIONS = """
46 64 2 1 1; 280 256 2 -1 1; 38 104 2 100 2; 97 228 2 -1 2; 85 152 16 7 3; 292 512 128 -1 3;
109 512 128 7 4; 370 512 128 -1 4; 231 608 128 100 5; 408 512 16 -1 5; 40 256 128 32 6;
25 152 16 -1 6; 34 512 128 7 7; 11 80 128 -1 7; 71 608 128 100 8; 47 512 16 100 9; 2 20 16 64 10;
45 512 128 -1 10; 25 304 16 32 11; 50 608 128 100 12; 17 512 16 100 13; 4 64 128 -1 14;
6 104 128 100 15; 17 512 16 32 16; 14 256 128 -1 16; 24 512 128 100 17; 14 304 128 -1 19;
24 608 128 64 22; 23 608 128 -1 23; 9 256 128 100 25; 9 256 128 -1 25; 15 512 128 -1 29;
11 608 128 64 32; 17 608 128 100 34; 15 608 128 -1 35; 5 228 128 -1 39; 6 304 128 -1 43;
10 512 128 -1 44; 9 512 128 -1 49; 3 228 128 100 50; 10 608 128 -1 52; 7 512 128 -1 63;
2 152 128 64 64; 1 80 128 -1 68; 3 256 128 -1 73; 5 512 128 -1 87; 2 228 128 -1 97;
1 152 128 100 100; 5 608 128 -1 103; 1 608 128 -1 109; 0 64 16 -1 1; 7 0 16 -1 1
"""
#: Of the C++ that the table is from.
DIGESTS = {
    "num_splits_heuristic": "24b1e3714b975dc0",
    "num_splits_heuristic_ck": "d029d74f8e5a61d1",
}


@pytest.mark.parametrize("line", [line.strip() for line in DECISIONS.split(";")])
def test_decisions(line: str) -> None:
    """Prevents: another number of splits than CK's or AITER's own caller takes."""
    blocks, slots, most, columns, wanted = map(int, line.split())
    assert splits(blocks, slots, most, None if columns < 0 else columns) == wanted


@pytest.mark.parametrize("name", DIGESTS)
def test_the_formulas_are_those_of_the_tree(aiter_tree: Path, name: str) -> None:
    """Prevents: decisions of a formula that AITER or CK has left."""
    files = (
        aiter_tree / read_tree(aiter_tree).fmha_dir / "fmha_fwd_runner.hpp",
        next(aiter_tree.rglob("csrc/include/mha_common.h")),
    )
    text = files[name.endswith("_ck")].read_text("utf-8")
    (body,) = re.findall(rf"\n{name}\(int.*?\n}}|\nint {name}\(int.*?\n}}", text, re.DOTALL)
    words = " ".join(body.split())
    assert hashlib.sha256(words.encode()).hexdigest()[:16] == DIGESTS[name], words


def test_splits_of_a_decode() -> None:
    """Prevents: one query on a GPU of 304 compute units that keeps a handful of them busy."""
    assert splits_of([1], nhead_q=32, units=304) == 17
    assert splits_of([1] * 64, nhead_q=32, units=304) == 1
    assert splits_of([128], nhead_q=32, units=304) == splits_of([65], nhead_q=32, units=304)
