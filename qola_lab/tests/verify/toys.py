"""Outcomes of kernels that do not exist, for tests of reports."""

from __future__ import annotations

from gfxemu.coverage import BlockSize
from qola_lab.problems import AttentionProblem
from qola_lab.verify.case import Sample
from qola_lab.verify.expected import Verdict
from qola_lab.verify.outcome import Coverage, Outcome, Trial

PROBLEM = AttentionProblem("fwd", "bf16", 64, 64, (5,), (7,), 2, 1, 0.125)
RIGHT = Verdict("o", 0.5, 0, 640, (0, 0, 0, 0), 1.0, 1.0, 0.1)
WRONG = Verdict("o", float("inf"), 3, 640, (0, 1, 0, 2), float("nan"), 1.0, 0.1)
SAMPLE = Sample(PROBLEM)
TRIAL = Trial(SAMPLE, ("k",), (RIGHT,))
PASSED = Outcome("k", "gfx950", (TRIAL, TRIAL))
#: Of three blocks, the second one did not run.
COVERED = Coverage.from_blocks(
    [BlockSize(0, 16, 4, 0, 1), BlockSize(16, 24, 2, 1, 0), BlockSize(24, 40, 4, 0, 0)], {0, 24}
)
