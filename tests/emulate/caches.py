"""Kernels over a cache of K and V, run over arrays and computed by the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qola.attention import AttentionProblem
from qola.fmha import reference
from qola.fmha.runner import Run, Runner
from qola.verify.host import Built


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Return numbers of half precision."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def appended(
    library: Built, arch: str, problem: AttentionProblem
) -> tuple[Run, reference.Appended]:
    """Return what a kernel that appends makes of some arrays, and what is right."""
    shapes = problem.shapes()
    alone = replace(problem, seqlen_k=(problem.seqlen_knew,) * problem.batch).shapes()
    arrays = [drawn(shapes[name], n) for n, name in enumerate(("q", "k", "v"))]
    arrays += [drawn(alone[name], 3 + n) for n, name in enumerate(("k", "v"))]
    angles: dict[str, Any] = {}
    if problem.rope_type != "no":
        turned = np.random.default_rng(7).uniform(
            0, 7, (max(problem.seqlen_k), problem.rotary_dim // 2)
        )
        angles = {
            "cos": np.cos(turned).astype(np.float16),
            "sin": np.sin(turned).astype(np.float16),
        }
    run = Runner(library, arch).append_kv(problem, *arrays, **angles)
    return run, reference.append_kv(problem, *arrays, **angles)
