"""Samples problems that a library's kernels serve, and similar ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from qola.aiter.attention import MAIN_ROLE
from qola.plan.model import KernelInstance
from qola_lab.problems import AttentionProblem
from qola_lab.reference.masks import BOTTOM_RIGHT, NO_MASK, TOP_LEFT, Mask
from qola_lab.verify.propose import propose
from qola_lab.verify.sample import MAX_WORK, generator

_DTYPES = ("fp32", "fp16", "bf16", "fp8")
_HDIMS = (8, 16, 32, 40, 64, 72, 96, 104, 128, 160, 192, 256, 264)
_MASKS = (NO_MASK, TOP_LEFT, BOTTOM_RIGHT, Mask("top_left", 17, 5), Mask("bottom_right", 0, 3))


def sweep(
    kernels: Sequence[KernelInstance], count: int, seed: int = 0, max_work: int = MAX_WORK
) -> Iterator[AttentionProblem]:
    """Yield problems that kernels serve, and similar ones; equal for equal seeds.

    About half are a kernel's problem with one property changed, which perhaps no kernel serves.

    Args:
        kernels: of one arch.
        max_work: see `AttentionProblem.work`.
    """
    mains = [
        k for k in kernels if k.role == MAIN_ROLE.get(k.direction) and not k.fields.get("pagedkv")
    ]
    made = attempt = 0
    while mains and made < count:
        attempt += 1
        chosen = generator("sweep", seed, made, attempt)
        kernel = mains[int(chosen.integers(len(mains)))]
        edge = int(chosen.integers(1 << 30))
        sample = propose(kernel.direction, kernel.fields, edge, chosen, max_work)
        if sample is not None:
            made += 1
            problem = sample.problem
            yield _changed(problem, chosen) if chosen.random() < 0.5 else problem


def _changed(problem: AttentionProblem, chosen: np.random.Generator) -> AttentionProblem:
    """Return a problem with another value of one property."""
    hdim = int(chosen.choice(_HDIMS))
    backward = problem.direction == "bwd"
    changes: list[dict[str, Any]] = [
        {"dtype": str(chosen.choice(_DTYPES))},
        {"hdim_q": hdim},
        {"hdim_v": hdim},
        {"hdim_q": hdim, "hdim_v": hdim},
        asdict(_MASKS[int(chosen.integers(len(_MASKS)))]),
        {"bias_type": str(chosen.choice(["no", "bias", "alibi"]))},
        {"dropout_p": 0.0 if problem.dropout_p else 0.25, "drop_seed": 7, "drop_offset": 11},
    ]
    if backward:
        changes.append({"deterministic": not problem.deterministic})
        changes.append({"has_dbias": not problem.has_dbias})
    else:
        changes.append({"return_lse": not problem.return_lse})
        changes.append({"logits_soft_cap": 0.0 if problem.logits_soft_cap else 10.0})
    change = changes[int(chosen.integers(len(changes)))]
    if problem.direction == "fwd_splitkv" and "dropout_p" in change:
        change = {}  # Its arguments have none.
    return replace(problem, **change)
