"""Into how many parts K and V are split, so that few queries keep a whole GPU busy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Rows of Q that a block takes, and blocks for each compute unit, as CK's own caller has them.
_ROWS, _BLOCKS_PER_UNIT = 64, 2
MOST = 128
"""The most splits."""


def splits(blocks: int, slots: int, most: int = MOST, columns: int | None = None) -> int:
    """Return how many splits leave the fewest of a GPU's slots idle.

    The formula is CK's num_splits_heuristic (example/ck_tile/01_fmha/fmha_fwd_runner.hpp): of the
    splits that fill whole rounds of slots to at least 85 % of the best, the fewest; one where
    blocks fill 80 % of the slots by themselves. With `columns` it is AITER's
    num_splits_heuristic_ck (csrc/include/mha_common.h), which leaves out splits that have no
    fewer blocks of columns each than one split less.

    Args:
        blocks: blocks without splits: batch x heads x blocks of rows.
        slots: blocks that a GPU runs at a time.
        columns: blocks of columns, None to leave them out of account.
    """
    # As in C++: floats where it has them, and a double where it compares.
    if blocks >= np.float32(0.8) * np.float32(slots):
        return 1
    most = min(most, slots, most if columns is None else columns)
    filled = [_filled(blocks, slots, n) if _counts(n, columns) else 0.0 for n in range(1, most + 1)]
    best = max(filled, default=0.0)
    enough = (n for n, share in enumerate(filled, 1) if share and share >= 0.85 * best)
    return next(enough, 1)


def _filled(blocks: int, slots: int, count: int) -> float:
    """Return the share of slots that are in use while splits run."""
    rounds = np.float32(blocks * count) / np.float32(slots)
    return float(rounds / np.ceil(rounds)) if rounds else 0.0


def _counts(count: int, columns: int | None) -> bool:
    return columns is None or count == 1 or -(-columns // count) != -(-columns // (count - 1))


def splits_of(rows: Sequence[int], nhead_q: int, units: int) -> int:
    """Return the splits that CK's own caller chooses.

    Args:
        rows: length of Q of each sequence.
        units: compute units of the GPU.
    """
    blocks = len(rows) * nhead_q * -(-max(rows) // _ROWS)
    return splits(blocks, units * _BLOCKS_PER_UNIT)
