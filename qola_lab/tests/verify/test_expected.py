"""Expected results of kernels, and the comparison with them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from qola_base.formats import BF16, F64, FP16, FP32, rounded
from qola_lab.problems import AttentionProblem, TestData, formats
from qola_lab.reference.attention import Attention, Forward, forward
from qola_lab.reference.masks import BOTTOM_RIGHT, TOP_LEFT
from qola_lab.tests.reference.rounding_kernel import RIGHT, Faults, run_backward, run_forward
from qola_lab.verify.expected import compare, expected, left_by_forward
from qola_lab.verify.tensors import arithmetic, tensors

FORWARD = AttentionProblem("fwd", "bf16", 64, 32, (40, 40), (70, 70), 4, 2, 0.125, return_lse=True)
BACKWARD = replace(FORWARD, direction="bwd")
GROUP: dict[str, Any] = {"mode": "group", "seqlen_q": (40, 0, 33, 5), "seqlen_k": (70, 9, 0, 64)}


def run(
    problem: AttentionProblem, attention: Attention | None = None, faults: Faults = RIGHT
) -> Any:
    """Run the NumPy kernel; return inputs, arithmetic, and results in the layout of `expected`."""
    inputs = tensors(problem, "gfx950")
    arithmetic_ = arithmetic(problem, "gfx950", 32)
    attention = attention or problem.attention
    sequences = inputs.sequences(problem)
    parts: list[dict[str, F64]] = []
    if problem.direction != "bwd":
        parts = [
            vars(run_forward(attention, sequence, arithmetic_, faults)) for sequence in sequences
        ]
    else:
        stored: list[Forward] = left_by_forward(problem, inputs, arithmetic_)
        do = (
            np.split(inputs.do, inputs.starts_q[1:-1]) if problem.is_group_mode else list(inputs.do)
        )
        parts = [
            vars(run_backward(attention, *part_inputs, arithmetic_, faults))
            for part_inputs in zip(sequences, do, stored, strict=True)
        ]
    found = {}
    for name in ("o", "lse", "dq", "dk", "dv", "dbias"):
        arrays = [part[name] for part in parts if name in part]
        if not arrays:
            continue
        if not problem.is_group_mode:
            found[name] = np.stack(arrays)
        elif name in ("o", "dq", "dk", "dv"):
            found[name] = np.concatenate(arrays)
        else:
            if name == "dbias":
                widest = max(problem.seqlen_k)
                arrays = [np.pad(a, ((0, 0), (0, 0), (0, widest - a.shape[2]))) for a in arrays]
            found[name] = np.concatenate(arrays, axis=1)
    return inputs, arithmetic_, found


@pytest.mark.parametrize(
    ("change", "rounding"),
    [
        ({"dtype": "fp16"}, "nearest_even"),
        ({"dtype": "fp16", "use_asm": True}, "toward_zero"),
        ({"dtype": "bf16", "use_asm": True}, "nearest_even"),
        ({"dtype": "bf16", "use_asm": True, "how_v3_bf16_cvt": 2}, "toward_zero"),
    ],
)
def test_roundings_of_backward_kernels(change: dict[str, Any], rounding: str) -> None:
    """Prevents: a correct kernel that fails because it truncates, or a wrong one that passes."""
    arithmetic_ = arithmetic(replace(BACKWARD, **change), "gfx950", 32)
    assert {arithmetic_.low_rounding, arithmetic_.out_rounding} == {rounding}


@pytest.mark.parametrize("group", [{}, GROUP], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": "fp16", **asdict(BOTTOM_RIGHT)},
        {**asdict(TOP_LEFT), "bias_type": "bias", "nhead_bias": 4, "has_dbias": True},
        {"bias_type": "alibi", "batched_alibi_slopes": True, "dropout_p": 0.25, "drop_seed": 3},
        {"dtype": "fp32", "bias_type": "bias", "softmax_scale": 1.0},
    ],
    ids=["plain", "fp16", "bias", "alibi", "fp32"],
)
def test_a_correct_kernel_passes(
    direction: str, changes: dict[str, Any], group: dict[str, Any]
) -> None:
    """Prevents: results compared with another sequence, head or layout."""
    problem = replace(FORWARD, direction=direction, **changes, **group)
    inputs, arithmetic_, found = run(problem)
    expected_ = expected(problem, inputs, arithmetic_)
    verdicts = compare(found, expected_)
    names = {"o", "lse"} if direction == "fwd" else {"dq", "dk", "dv"}
    names |= {"dbias"} if direction == "bwd" and "has_dbias" in changes else set()
    assert {verdict.name for verdict in verdicts} == names
    for verdict in verdicts:
        assert verdict.passed, str(verdict)
        assert verdict.compared > 100


@pytest.mark.parametrize("group", [{}, GROUP], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_a_wrong_kernel_fails(direction: str, group: dict[str, Any]) -> None:
    """Prevents: a verdict that passes for any result."""
    problem = replace(FORWARD, direction=direction, **asdict(BOTTOM_RIGHT), **group)
    inputs, arithmetic_, found = run(problem, replace(problem.attention, mask=TOP_LEFT))
    verdicts = compare(found, expected(problem, inputs, arithmetic_))
    assert not any(verdict.passed for verdict in verdicts)
    assert "in place of" in str(verdicts[0])


def test_nan_and_infinity_fail() -> None:
    """Prevents: a NaN that passes since every comparison with it is false."""
    inputs, arithmetic_, found = run(FORWARD)
    expected_ = expected(FORWARD, inputs, arithmetic_)
    found["o"][1, 2, 3, 4] = np.nan
    found["lse"][0, 1, 2] = np.inf
    lse, o = compare(found, expected_)
    assert (o.over, o.place) == (1, (1, 2, 3, 4))
    assert (lse.over, lse.place) == (1, (0, 1, 2))


def test_unwritten_results_are_not_compared() -> None:
    """Prevents: a kernel that fails for results of skipped sequences, or for an unrequested LSE."""
    problem = replace(FORWARD, **GROUP, min_seqlen_q=33, return_lse=False)
    inputs, arithmetic_, found = run(problem)
    found["o"][40:] = np.nan
    (o,) = compare(found, expected(problem, inputs, arithmetic_))
    assert o.passed
    assert o.compared == 40 * 4 * 32
    inputs, arithmetic_, found = run(replace(BACKWARD, **GROUP))
    # The second sequence has no Q, the third has no K.
    found["dk"][70:79] = found["dq"][40:73] = np.nan
    assert all(
        v.passed for v in compare(found, expected(replace(BACKWARD, **GROUP), inputs, arithmetic_))
    )


def test_batch_and_group_have_equal_sequences() -> None:
    """Prevents: a group-mode sequence with a wrong start, or with another one's bias or slopes."""
    problem = replace(FORWARD, bias_type="bias", nhead_bias=4, dropout_p=0.25, drop_seed=5)
    inputs = tensors(problem, "gfx950")
    flat: dict[str, Any] = {name: np.concatenate(getattr(inputs, name)) for name in "qkv"}
    assert inputs.bias is not None
    group_inputs = replace(inputs, **flat, bias=np.tile(inputs.bias, (1, 2, 1)))
    pairs = inputs.sequences(problem), group_inputs.sequences(replace(problem, mode="group"))
    for first, second in zip(*pairs, strict=True):
        results = [forward(problem.attention, sequence).o for sequence in (first, second)]
        assert np.array_equal(results[0], results[1])
    alibi = replace(problem, bias_type="alibi", batched_alibi_slopes=True)
    slopes = tensors(alibi, "gfx950")
    assert slopes.alibi_slopes is not None
    found = [sequence.alibi_slopes for sequence in slopes.sequences(alibi)]
    assert np.array_equal(np.array(found), slopes.alibi_slopes)


def test_results_of_another_shape_are_refused() -> None:
    """Prevents: results of a wrong shape that NumPy broadcasts."""
    inputs, arithmetic_, found = run(FORWARD)
    expected_ = expected(FORWARD, inputs, arithmetic_)
    with pytest.raises(ValueError, match="lse: None"):
        compare({"o": found["o"]}, expected_)
    with pytest.raises(ValueError, match=r"o: \(40, 4, 32\)"):
        compare({**found, "o": found["o"][0]}, expected_)


def test_tensors_have_values_of_their_format() -> None:
    """Prevents: inputs that only the kernel reads rounded, not the reference."""
    problem = replace(FORWARD, bias_type="bias")
    for dtype, format_ in (("bf16", BF16), ("fp16", FP16), ("fp32", FP32)):
        inputs = tensors(replace(problem, dtype=dtype), "gfx950", TestData(3.0))
        for values in (inputs.q, inputs.k, inputs.v, inputs.do, inputs.bias):
            assert values is not None
            assert np.array_equal(rounded(values, format_), values)
        assert inputs.q.std() == pytest.approx(3, rel=0.05)
    again, other = (tensors(problem, "gfx950", TestData(seed=seed)) for seed in (0, 1))
    assert np.array_equal(again.q, tensors(problem, "gfx950").q)
    assert not np.array_equal(again.q, other.q)


def test_8_bit_formats_depend_on_the_arch() -> None:
    """Prevents: gfx950's fp8 format used for gfx942, where codes have half the value."""
    assert [formats("fp8bf16", arch)[0].name for arch in ("gfx942", "gfx950")] == [
        "fp8_fnuz",
        "fp8",
    ]
    assert formats("fp8bf16", "gfx942")[1] is BF16
