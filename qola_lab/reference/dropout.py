"""CK's dropout: the elements of P that it keeps, and their scale.

The rules are those of CK's ck_tile/ops/fmha/block/block_dropout.hpp (BlockDropout) and
ck_tile/host/reference/reference_batched_dropout_randval.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qola_base.formats import F64
from qola_lab.reference.masks import EVERY

U32 = NDArray[np.uint32]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: U32, key: tuple[int, int], rounds: int) -> U32:
    """Return four random words of Philox 4x32 for each counter (Random123; Salmon et al., 2011).

    Args:
        counter: [..., 4], the words c0 to c3.
        key: its two words.
        rounds: 10 in Random123's recommendation, 7 the least that pass its tests, and in CK.
    """
    words = counter.astype(np.uint64)
    c0, c1, c2, c3 = (words[..., place] for place in range(4))
    for number in range(rounds):
        k0, k1 = (
            np.uint64((word + number * step) & 0xFFFFFFFF)
            for word, step in zip(key, _KEY_STEPS, strict=True)
        )
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> _HALF) ^ c1 ^ k0,
            second & _LOW,
            (first >> _HALF) ^ c3 ^ k1,
            first & _LOW,
        )
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


#: CK's class philox (ck_tile/core/utility/philox_rand.hpp).
ROUNDS = 7
#: Rows and columns of P whose bytes come from one subsequence, and counters that they take.
_TILE, _COUNTERS = 32, 64
_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Dropout:
    """Dropout of P.

    Attributes:
        probability: of an element to be dropped, before CK rounds it; at least 0, below 1.
        seed, offset: unsigned 64-bit, as a caller hands them over.
    """

    probability: float
    seed: int = 0
    offset: int = 0

    @property
    def undropped(self) -> float:
        """1 - p as float32, as CK's dot_do_o multiplies its result with it."""
        return float(np.float32(1.0 - float(np.float32(self.probability))))

    @property
    def threshold(self) -> int:
        """The largest byte that keeps its element: floor(255 (1 - p)), in float32.

        So (threshold + 1) / 256 of the elements are kept, not just 1 - p of them.
        """
        return int(np.floor(np.float32(self.undropped) * np.float32(255)))

    @property
    def scale(self) -> float:
        """Factor of kept elements: 1 / (1 - p), whatever share the threshold keeps."""
        return float(np.float32(1.0 / self.undropped))

    def bytes(
        self,
        batch: int,
        heads: int,
        rows: int,
        columns: int,
        part: tuple[slice, slice] = (EVERY, EVERY),
    ) -> NDArray[np.uint8]:
        """Return the random byte of each element of P, [heads, rows, columns].

        Rows and columns count from the start of the sequence, in group mode too. Masks and tiles
        have no influence.

        Args:
            batch: number of the sequence.
            heads: all heads of Q, by which CK counts through the batch.
            part: the heads and rows to return.
        """
        first_row, end, _ = part[1].indices(rows)
        first_tile = first_row // _TILE
        across, down = -(-columns // _TILE), -(-end // _TILE) - first_tile
        head = batch * heads + np.arange(heads, dtype=np.uint64)[part[0]]
        # The offset wraps as CK's unsigned 64-bit number does.
        start = np.uint64(self.offset & _LONG) + head * np.uint64(_COUNTERS)
        low = start[:, None] + np.arange(_COUNTERS, dtype=np.uint64)
        counter = np.zeros((len(head), down, across, _COUNTERS, 4), np.uint32)
        counter[..., 0] = (low & np.uint64(_WORD)).astype(np.uint32)[:, None, None, :]
        counter[..., 1] = (low >> np.uint64(32)).astype(np.uint32)[:, None, None, :]
        counter[..., 2] = (first_tile + np.arange(down, dtype=np.uint32))[:, None, None]
        counter[..., 3] = np.arange(across, dtype=np.uint32)[:, None]
        words = philox4x32(counter, (self.seed & _WORD, self.seed >> 32 & _WORD), ROUNDS)
        drawn = words.astype("<u4").view(np.uint8).reshape(len(head), down, across, _COUNTERS, 16)
        # Counter 32 g + j has the bytes of column j; its byte 8 h + r is row 16 h + 8 g + r.
        tiles = drawn.reshape(len(head), down, across, 2, _TILE, 2, 8)
        ordered = tiles.transpose(0, 1, 5, 3, 6, 2, 4)
        whole = ordered.reshape(len(head), down * _TILE, across * _TILE)
        own = slice(first_row - first_tile * _TILE, end - first_tile * _TILE)
        return np.ascontiguousarray(whole[:, own, :columns])

    def factors(
        self,
        batch: int,
        heads: int,
        rows: int,
        columns: int,
        part: tuple[slice, slice] = (EVERY, EVERY),
    ) -> F64:
        """Return the factor of each element of P: 0 or `scale`; arguments are those of `bytes`."""
        kept = self.bytes(batch, heads, rows, columns, part) <= self.threshold
        return np.where(kept, self.scale, 0.0)
