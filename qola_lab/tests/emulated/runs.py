"""Random arrays, and runs of kernels and of `qola dispatch` with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from qola_lab.fmha import reference
from qola_lab.fmha.__main__ import main
from qola_lab.fmha.runner import Run, Runner
from qola_lab.problems import AttentionProblem
from qola_lab.verify.host import Built


def arrays(problem: AttentionProblem, *names: str, seed: int = 5) -> list[Any]:
    """Return arrays of a problem with normally distributed fp16 numbers."""
    generator = np.random.default_rng(seed)
    shapes = problem.shapes() | {"do": problem.shapes()["o"]}
    return [generator.normal(size=shapes[name]).astype(np.float16) for name in names]


def fault_text(run: Run) -> list[str]:
    """Return the verdicts and findings of a run, for the message of a failed assertion."""
    return [*map(str, run.verdicts), *run.findings]


def run_append(
    library: Built, arch: str, problem: AttentionProblem
) -> tuple[Run, reference.Appended]:
    """Run an append kernel on random arrays; return the run and the reference's results."""
    new = replace(problem, seqlen_k=(problem.seqlen_knew,) * problem.batch)
    given = [*arrays(problem, "q", "k", "v"), *arrays(new, "k", "v", seed=6)]
    angles: dict[str, Any] = {}
    if problem.rope_type != "no":
        phases = np.random.default_rng(7).uniform(
            0, 7, (max(problem.seqlen_k), problem.rotary_dim // 2)
        )
        angles = {
            "cos": np.cos(phases).astype(np.float16),
            "sin": np.sin(phases).astype(np.float16),
        }
    run = Runner(library, arch).append_kv(problem, *given, **angles)
    return run, reference.append_kv(problem, *given, **angles)


def run_dispatch(libraries: list[Built], *more: str) -> int:
    """Run the program of `qola dispatch` for libraries; return its exit code."""
    argv = ["--runtime", str(libraries[0].runtime)]
    for library in libraries:
        files = library.library, library.caller, library.repository / "plan.json"
        argv += ["--module", library.module, *map(str, files)]
    return main([*argv, *more])
