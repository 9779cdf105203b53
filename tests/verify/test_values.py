"""What entry points are handed, against what other callers of them hand over."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qola.attention import AttentionProblem
from qola.verify.values import entry_values

C_API = Path(__file__).parents[2] / "cc/api/qola_c_fill.h"
BACKWARD = AttentionProblem("bwd", "fp16", 32, 32, (5,), (7,), 2, 1, 0.2, return_lse=True)


def undropped(text: str, probability: float) -> float:
    """What a C++ file passes as p_undrop, a constant less the probability, as float32."""
    pattern = r"\bp_undrop(?:,| =) ([\d.]+)f? - (?:given\.dropout|p_dropout)\b"
    (constant,) = re.findall(pattern, text)
    return float(np.float32(float(constant) - float(np.float32(probability))))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.25, 0.5, 0.8])
def test_p_undrop_is_that_of_the_c_functions_and_of_aiter(
    probability: float, aiter_tree: Path
) -> None:
    """Prevents: correct kernels with dropout that fail, since they are called with 1 / (1 - p)."""
    files = [C_API, *sorted(aiter_tree.glob("aiter_meta/csrc/py_itfs_*/*mha*_bwd*.cu"))]
    assert len(files) == 5
    problem = replace(BACKWARD, dropout_p=probability)
    values = entry_values(problem, "gfx950", ())
    assert values["p_drop"] == probability
    for file in files:
        assert values["p_undrop"] == undropped(file.read_text("utf-8"), probability), file
