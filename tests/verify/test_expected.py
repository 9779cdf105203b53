"""What a kernel's results are compared with."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from qola.attention import AttentionProblem, TestData, formats
from qola.reference.attention import Attention, Forward, forward
from qola.reference.formats import BF16, F64, FP16, FP32, rounded
from qola.reference.masks import BOTTOM_RIGHT, TOP_LEFT
from qola.verify.expected import compare, expected, left_by_forward
from qola.verify.tensors import arithmetic, tensors
from tests.reference.rounding_kernel import RIGHT, Faults, run_backward, run_forward

FORWARD = AttentionProblem("fwd", "bf16", 64, 32, (40, 40), (70, 70), 4, 2, 0.125, return_lse=True)
BACKWARD = replace(FORWARD, direction="bwd")
GROUP: dict[str, Any] = {"mode": "group", "seqlen_q": (40, 0, 33, 5), "seqlen_k": (70, 9, 0, 64)}


def run(
    problem: AttentionProblem, attention: Attention | None = None, faults: Faults = RIGHT
) -> Any:
    """Results of the kernel in NumPy, in the layout of `expected`."""
    given = tensors(problem, "gfx950")
    how = arithmetic(problem, "gfx950", 32)
    attention = attention or problem.attention
    sequences = given.sequences(problem)
    parts: list[dict[str, F64]] = []
    if problem.direction != "bwd":
        parts = [vars(run_forward(attention, of, how, faults)) for of in sequences]
    else:
        left: list[Forward] = left_by_forward(problem, given, how)
        do = np.split(given.do, given.starts_q[1:-1]) if problem.is_group_mode else list(given.do)
        parts = [
            vars(run_backward(attention, *one, how, faults))
            for one in zip(sequences, do, left, strict=True)
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
    return given, how, found


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
    """Prevents: a right kernel that fails since it truncates, or a wrong one that passes."""
    how = arithmetic(replace(BACKWARD, **change), "gfx950", 32)
    assert {how.low_rounding, how.out_rounding} == {rounding}


@pytest.mark.parametrize("group", [{}, GROUP], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"dtype": "fp16", **asdict(BOTTOM_RIGHT)},
        {**asdict(TOP_LEFT), "bias_type": "bias", "nhead_bias": 4, "has_dbias": True},
        {"bias_type": "alibi", "batched_alibi_slopes": True, "dropout_p": 0.25, "drop_seed": 3},
        {"dtype": "fp32", "bias_type": "bias", "softmax_scale": 1.0},
    ],
    ids=["plain", "fp16", "bias", "alibi", "fp32"],
)
def test_a_right_kernel_passes(direction: str, more: dict[str, Any], group: dict[str, Any]) -> None:
    """Prevents: results compared with those of another sequence, head or layout."""
    problem = replace(FORWARD, direction=direction, **more, **group)
    given, how, found = run(problem)
    wanted = expected(problem, given, how)
    verdicts = compare(found, wanted)
    names = {"o", "lse"} if direction == "fwd" else {"dq", "dk", "dv"}
    names |= {"dbias"} if direction == "bwd" and "has_dbias" in more else set()
    assert {verdict.name for verdict in verdicts} == names
    for verdict in verdicts:
        assert verdict.passed, str(verdict)
        assert verdict.compared > 100


@pytest.mark.parametrize("group", [{}, GROUP], ids=["batch", "group"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_a_wrong_kernel_fails(direction: str, group: dict[str, Any]) -> None:
    """Prevents: a verdict that passes whatever a kernel wrote."""
    problem = replace(FORWARD, direction=direction, **asdict(BOTTOM_RIGHT), **group)
    given, how, found = run(problem, replace(problem.attention, mask=TOP_LEFT))
    verdicts = compare(found, expected(problem, given, how))
    assert not any(verdict.passed for verdict in verdicts)
    assert "in place of" in str(verdicts[0])


def test_a_nan_is_beyond_every_limit() -> None:
    """Prevents: NaN that no comparison with a limit finds."""
    given, how, found = run(FORWARD)
    wanted = expected(FORWARD, given, how)
    found["o"][1, 2, 3, 4] = np.nan
    found["lse"][0, 1, 2] = np.inf
    lse, o = compare(found, wanted)
    assert (o.over, o.place) == (1, (1, 2, 3, 4))
    assert (lse.over, lse.place) == (1, (0, 1, 2))


def test_what_a_kernel_need_not_write() -> None:
    """Prevents: a failure over memory of a sequence that is skipped, or an LSE not asked for."""
    problem = replace(FORWARD, **GROUP, min_seqlen_q=33, return_lse=False)
    given, how, found = run(problem)
    found["o"][40:] = np.nan
    (o,) = compare(found, expected(problem, given, how))
    assert o.passed
    assert o.compared == 40 * 4 * 32
    given, how, found = run(replace(BACKWARD, **GROUP))
    # K of the second sequence meets no Q, and Q of the third no K.
    found["dk"][70:79] = found["dq"][40:73] = np.nan
    assert all(v.passed for v in compare(found, expected(replace(BACKWARD, **GROUP), given, how)))


def test_batch_and_group_are_the_same_sequences() -> None:
    """Prevents: a sequence that starts a row late, or with the bias or slopes of another."""
    problem = replace(FORWARD, bias_type="bias", nhead_bias=4, dropout_p=0.25, drop_seed=5)
    given = tensors(problem, "gfx950")
    flat: dict[str, Any] = {name: np.concatenate(getattr(given, name)) for name in "qkv"}
    assert given.bias is not None
    other = replace(given, **flat, bias=np.tile(given.bias, (1, 2, 1)))
    pairs = given.sequences(problem), other.sequences(replace(problem, mode="group"))
    for one, two in zip(*pairs, strict=True):
        results = [forward(problem.attention, of).o for of in (one, two)]
        assert np.array_equal(results[0], results[1])
    alibi = replace(problem, bias_type="alibi", batched_alibi_slopes=True)
    slopes = tensors(alibi, "gfx950")
    assert slopes.alibi_slopes is not None
    found = [one.alibi_slopes for one in slopes.sequences(alibi)]
    assert np.array_equal(np.array(found), slopes.alibi_slopes)


def test_results_of_another_shape_are_refused() -> None:
    """Prevents: shapes that NumPy makes fit each other."""
    given, how, found = run(FORWARD)
    wanted = expected(FORWARD, given, how)
    with pytest.raises(ValueError, match="lse: None"):
        compare({"o": found["o"]}, wanted)
    with pytest.raises(ValueError, match=r"o: \(40, 4, 32\)"):
        compare({**found, "o": found["o"][0]}, wanted)


def test_tensors_have_values_of_their_format() -> None:
    """Prevents: inputs that a kernel reads rounded and the reference does not."""
    problem = replace(FORWARD, bias_type="bias")
    for dtype, of in (("bf16", BF16), ("fp16", FP16), ("fp32", FP32)):
        given = tensors(replace(problem, dtype=dtype), "gfx950", TestData(3.0))
        for values in (given.q, given.k, given.v, given.do, given.bias):
            assert values is not None
            assert np.array_equal(rounded(values, of), values)
        assert given.q.std() == pytest.approx(3, rel=0.05)
    again, other = (tensors(problem, "gfx950", TestData(seed=seed)) for seed in (0, 1))
    assert np.array_equal(again.q, tensors(problem, "gfx950").q)
    assert not np.array_equal(again.q, other.q)


def test_8_bit_formats_are_the_arch_s() -> None:
    """Prevents: fp8 of gfx950 on gfx942, whose numbers are half as large."""
    assert [formats("fp8bf16", arch)[0].name for arch in ("gfx942", "gfx950")] == [
        "fp8_fnuz",
        "fp8",
    ]
    assert formats("fp8bf16", "gfx942")[1] is BF16
