"""Random problems around what the tests' manifest serves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeVar

from tests.verify.problem import ConsumerCall
from tests.verify.table import Device, Row

T = TypeVar("T")

SEED = 20261121

_HDIMS = (8, 12, 16, 24, 31, 32, 32, 32, 32, 40)
_SEQLENS = (1, 16, 63, 64, 100, 128, 200, 256, 300, 1024, 4097)


def _mostly(chosen: random.Random, usual: T, *others: T) -> T:
    """Return what the manifest serves nine times out of ten."""
    return usual if chosen.random() < 0.9 else chosen.choice(others)


def rows(count: int, device: Device) -> Iterator[Row]:
    """Yield so many random rows, the same in every run."""
    chosen = random.Random(SEED)
    for _ in range(count):
        direction = chosen.choice(("fwd", "bwd"))
        nhead_k = chosen.choice((1, 2, 4))
        seqlen_q = chosen.choice(_SEQLENS)
        bias = _mostly(chosen, "no", "bias", "alibi")
        yield Row(
            ConsumerCall(
                direction,
                _mostly(chosen, "fp16", "bf16", "fp32"),
                chosen.choice(_HDIMS),
                chosen.choice(_HDIMS),
                mode=_mostly(chosen, "batch", "group"),
                mask=_mostly(chosen, "no", "top_left", "bottom_right", "window"),
                bias=bias,
                lse=direction == "bwd" or chosen.random() < 0.9,
                dbias=direction == "bwd" and bias == "bias" and chosen.random() < 0.5,
                dropout=_mostly(chosen, 0.0, 0.1),
                deterministic=direction == "bwd" and chosen.random() < 0.1,
                batch=chosen.choice((1, 2, 5)),
                nhead_q=nhead_k * chosen.choice((1, 2, 4)),
                nhead_k=nhead_k,
                seqlen_q=seqlen_q,
                seqlen_k=chosen.choice((seqlen_q, *_SEQLENS)),
                soft_cap=_mostly(chosen, 0.0, 30.0) if direction == "fwd" else 0.0,
            ),
            device,
        )
