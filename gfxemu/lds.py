"""Local memory (DS): the operations that only the LDS has."""

from __future__ import annotations

import numpy as np

from gfxemu.arrays import U8, U16, U32
from gfxemu.buffers import (
    LDS_UPDATES,
    bind_access,
    bind_atomic,
    data_register,
    lds_finder,
    read,
    write,
)
from gfxemu.decode import Instruction
from gfxemu.lanes import Binder
from gfxemu.operands import Literals
from gfxemu.waves import Step, Waves


def _bind_pair(one: Instruction, literals: Literals) -> Step:
    """Two accesses, whose offsets count words or pairs of words, or 64 of them (ST64)."""
    words = 2 if one.name.endswith("B64") else 1
    step = 4 * words * (64 if "ST64" in one.name else 1)
    first, second = (lds_finder(one, one[f"offset{n}"] * step) for n in range(2))
    if "READ" in one.name:
        target = data_register(one, "vdst")

        def load(w: Waves) -> None:
            # Both addresses before any write: they may share a register with the destination.
            low, high = read(w, one, first, words), read(w, one, second, words)
            w.put(target, low)
            w.put(target + words, high)

        return load
    sources = data_register(one, "data0"), data_register(one, "data1")

    def store(w: Waves) -> None:
        write(w, one, first, w.words(sources[0], words))
        write(w, one, second, w.words(sources[1], words))

    return store


def _bind_transposed(one: Instruction, literals: Literals) -> Step:
    """Rows of 16 values in 16 lanes, four of 16 bits or eight of 8 bits; each lane gets a column.

    Of 16 bits, lane l reads four values of row l / 4, and gets value l of each of the four rows.
    Values of inactive lanes count as 0.
    """
    stored, rows = (U8, 8) if one.name.endswith("B8") else (U16, 4)
    finder = lds_finder(one, one["offset0"] | one["offset1"] << 8)
    target = data_register(one, "vdst")
    lane = np.arange(64)
    group, column = lane // 16 * 16, lane % 16
    # For each row, the lane that read the column's value, and which of its values.
    lanes = 16 // rows
    sources = np.stack([group + lanes * row + column // rows for row in range(rows)], axis=-1)
    which = np.broadcast_to((column % rows)[:, None], (64, rows))

    def run(w: Waves) -> None:
        words = read(w, one, finder, 2) * w.exec
        halves = np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(stored)
        turned = np.ascontiguousarray(halves[:, sources, which]).view(U32)
        w.put(target, np.moveaxis(turned, -1, 0))

    return run


_DIRECTIONS = ("READ", "WRITE")
_PLAIN = (
    *(f"{d}_{k}" for d in _DIRECTIONS for k in ("B32", "B64", "B96", "B128")),
    *(f"READ_{k}" for k in ("U8", "I8", "U16", "I16")),
    *(f"READ_{k}_D16{h}" for k in ("U8", "I8", "U16") for h in ("", "_HI")),
    *("WRITE_B8", "WRITE_B16", "WRITE_B8_D16_HI", "WRITE_B16_D16_HI"),
)
PAIRS = [f"{d}{p}_{k}" for d in _DIRECTIONS for p in ("2", "2ST64") for k in ("B32", "B64")]

LDS: dict[str, Binder] = {
    **{f"DS_{name}": bind_access for name in _PLAIN},
    **{f"DS_{name}": _bind_pair for name in PAIRS},
    "DS_READ_B64_TR_B16": _bind_transposed,
    "DS_READ_B64_TR_B8": _bind_transposed,
    **{f"DS_{name}": bind_atomic for name in LDS_UPDATES},
    **{f"DS_{name.replace('_', '_RTN_')}": bind_atomic for name in LDS_UPDATES},
}
