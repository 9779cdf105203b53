"""Inputs, runs and expected results of kernels that append to a cache of K and V."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qola_lab.fmha import reference
from qola_lab.fmha.runner import Run, Runner
from qola_lab.problems import AttentionProblem
from qola_lab.verify.host import Built


def random_fp16(shape: tuple[int, ...], seed: int) -> Any:
    """Return normally distributed fp16 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def run_append(
    library: Built, arch: str, problem: AttentionProblem
) -> tuple[Run, reference.Appended]:
    """Run an append kernel on random arrays; return the run and the reference's results."""
    shapes = problem.shapes()
    new_shapes = replace(problem, seqlen_k=(problem.seqlen_knew,) * problem.batch).shapes()
    arrays = [random_fp16(shapes[name], n) for n, name in enumerate(("q", "k", "v"))]
    arrays += [random_fp16(new_shapes[name], 3 + n) for n, name in enumerate(("k", "v"))]
    angles: dict[str, Any] = {}
    if problem.rope_type != "no":
        phases = np.random.default_rng(7).uniform(
            0, 7, (max(problem.seqlen_k), problem.rotary_dim // 2)
        )
        angles = {
            "cos": np.cos(phases).astype(np.float16),
            "sin": np.sin(phases).astype(np.float16),
        }
    run = Runner(library, arch).append_kv(problem, *arrays, **angles)
    return run, reference.append_kv(problem, *arrays, **angles)
