"""Random problems, most of which the tests' manifest serves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeVar

from qola_lab.tests.verify.predict import ConsumerCall
from qola_lab.tests.verify.table import Device, Row

T = TypeVar("T")

SEED = 20261121

_HDIMS = (8, 12, 16, 24, 31, 32, 32, 32, 32, 40)
_SEQLENS = (1, 16, 63, 64, 100, 128, 200, 256, 300, 1024, 4097)


def _mostly(rng: random.Random, usual: T, *others: T) -> T:
    """Return the value that the manifest serves with a probability of 0.9."""
    return usual if rng.random() < 0.9 else rng.choice(others)


def rows(count: int, device: Device) -> Iterator[Row]:
    """Yield `count` random rows, which are equal in every run."""
    rng = random.Random(SEED)
    for _ in range(count):
        direction = rng.choice(("fwd", "bwd"))
        nhead_k = rng.choice((1, 2, 4))
        seqlen_q = rng.choice(_SEQLENS)
        bias = _mostly(rng, "no", "bias", "alibi")
        yield Row(
            ConsumerCall(
                direction,
                _mostly(rng, "fp16", "bf16", "fp32"),
                rng.choice(_HDIMS),
                rng.choice(_HDIMS),
                mode=_mostly(rng, "batch", "group"),
                mask=_mostly(rng, "no", "top_left", "bottom_right", "window"),
                bias=bias,
                lse=direction == "bwd" or rng.random() < 0.9,
                dbias=direction == "bwd" and bias == "bias" and rng.random() < 0.5,
                dropout=_mostly(rng, 0.0, 0.1),
                deterministic=direction == "bwd" and rng.random() < 0.1,
                batch=rng.choice((1, 2, 5)),
                nhead_q=nhead_k * rng.choice((1, 2, 4)),
                nhead_k=nhead_k,
                seqlen_q=seqlen_q,
                seqlen_k=rng.choice((seqlen_q, *_SEQLENS)),
                soft_cap=_mostly(rng, 0.0, 30.0) if direction == "fwd" else 0.0,
            ),
            device,
        )
