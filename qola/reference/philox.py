"""Philox 4x32, the counter-based random numbers of Random123 (Salmon et al., 2011)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: U32, key: tuple[int, int], rounds: int) -> U32:
    """Return four random words for each counter.

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
