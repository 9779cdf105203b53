"""Random problems around what the tests' manifest serves."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.consumer.problem import Problem
from tests.consumer.table import GFX942, GFX950, Device, Row

SEED = 20261121

_HDIMS = (8, 16, 24, 31, 32, 32, 32, 40, 64, 128)
_SEQLENS = (1, 16, 63, 64, 100, 128, 200, 256, 300, 1024, 4097)


def rows(count: int) -> Iterator[Row]:
    """Yield random rows, the same in every run.

    Args:
        count: how many.
    """
    chosen = random.Random(SEED)
    for _ in range(count):
        device: Device = chosen.choice((GFX942, GFX950))
        direction = chosen.choice(("fwd", "bwd"))
        nhead_k = chosen.choice((1, 2, 4))
        seqlen_q = chosen.choice(_SEQLENS)
        bias = chosen.choice(("no", "no", "no", "bias", "alibi"))
        yield Row(
            Problem(
                direction,
                chosen.choice(("fp16", "fp16", "fp16", "bf16", "fp32")),
                chosen.choice(_HDIMS),
                chosen.choice(_HDIMS),
                mode=chosen.choice(("batch", "group")),
                mask=chosen.choice(("no", "no", "top_left", "bottom_right", "window")),
                bias=bias,
                lse=direction == "bwd" or chosen.random() < 0.7,
                dbias=direction == "bwd" and bias == "bias" and chosen.random() < 0.5,
                dropout=chosen.choice((0.0, 0.0, 0.0, 0.1)),
                deterministic=direction == "bwd" and chosen.random() < 0.2,
                batch=chosen.choice((1, 2, 5)),
                nhead_q=nhead_k * chosen.choice((1, 2, 4)),
                nhead_k=nhead_k,
                seqlen_q=seqlen_q,
                seqlen_k=chosen.choice((seqlen_q, *_SEQLENS)),
                soft_cap=chosen.choice((0.0, 0.0, 0.0, 30.0)) if direction == "fwd" else 0.0,
            ),
            device,
        )
