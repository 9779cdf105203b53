"""Arguments of entry points, compared with other callers' arguments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qola_lab.problems import AttentionProblem
from qola_lab.verify.values import entry_values

C_API = Path(__file__).parents[3] / "runtime/api/qola_c_fill.h"
BACKWARD = AttentionProblem("bwd", "fp16", 32, 32, (5,), (7,), 2, 1, 0.2, return_lse=True)


def undropped(text: str, probability: float) -> float:
    """Return p_undrop in a C++ file, a constant minus the probability, as float32."""
    pattern = r"\bp_undrop(?:,| =) ([\d.]+)f? - (?:given\.dropout|p_dropout)\b"
    (constant,) = re.findall(pattern, text)
    return float(np.float32(float(constant) - float(np.float32(probability))))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.25, 0.5, 0.8])
def test_p_undrop_matches_the_c_api_and_aiter(probability: float, aiter_tree: Path) -> None:
    """Prevents: correct dropout kernels that fail because verification passes 1 / (1 - p)."""
    files = [C_API, *sorted(aiter_tree.glob("aiter_meta/csrc/py_itfs_*/*mha*_bwd*.cu"))]
    assert len(files) == 5
    problem = replace(BACKWARD, dropout_p=probability)
    values = entry_values(problem, "gfx950", ())
    assert values["p_drop"] == probability
    for file in files:
        assert values["p_undrop"] == undropped(file.read_text("utf-8"), probability), file
