"""Outcomes of made-up kernels."""

from __future__ import annotations

from qola.verify.expected import Verdict
from qola.verify.outcome import Outcome, Trial
from qola.verify.problem import Problem

PROBLEM = Problem("fwd", "bf16", 64, 64, False, (5,), (7,), 2, 1, 0.125)
RIGHT = Verdict("o", 0.5, 0, 640, (0, 0, 0, 0), 1.0, 1.0, 0.1)
WRONG = Verdict("o", float("inf"), 3, 640, (0, 1, 0, 2), float("nan"), 1.0, 0.1)
TRIAL = Trial(PROBLEM, ("k",), (RIGHT,))
PASSED = Outcome("k", "gfx950", (TRIAL, TRIAL))
