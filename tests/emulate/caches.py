"""Kernels over a cache of K and V, run over arrays and computed by the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qola.fmha import reference
from qola.fmha.problem import Problem
from qola.fmha.runner import Run, Runner
from qola.verify.host import Built


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Return numbers of half precision."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def appended(library: Built, arch: str, of: Problem) -> tuple[Run, reference.Appended]:
    """Return what a kernel that appends makes of some arrays, and what is right."""
    shapes = of.shapes()
    alone = replace(of, columns=(of.new,) * of.batch).shapes()
    arrays = [drawn(shapes[name], n) for n, name in enumerate(("q", "k", "v"))]
    arrays += [drawn(alone[name], 3 + n) for n, name in enumerate(("k", "v"))]
    angles: dict[str, Any] = {}
    if of.rope != "no":
        turned = np.random.default_rng(7).uniform(0, 7, (max(of.columns), of.rotary // 2))
        angles = {
            "cos": np.cos(turned).astype(np.float16),
            "sin": np.sin(turned).astype(np.float16),
        }
    run = Runner(library, arch).append_kv(of, *arrays, **angles)
    return run, reference.append_kv(of, *arrays, **angles)
