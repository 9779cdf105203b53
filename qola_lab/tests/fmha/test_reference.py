"""Attention problems, and the reference over arrays."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from qola_lab.fmha import reference
from qola_lab.problems import AttentionProblem, ProblemError, make_problem
from qola_lab.reference.masks import BOTTOM_RIGHT

BATCH = make_problem(
    "bwd", "fp16", seqlen_q=5, seqlen_k=7, nhead_q=4, nhead_k=2, hdim=(16, 8), batch=2
)
GROUP = make_problem(
    "bwd", "fp16", seqlen_q=[3, 0, 4], seqlen_k=[6, 5, 1], nhead_q=2, nhead_k=1, hdim=16
)


def arrays(problem: AttentionProblem, *names: str, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    shapes = problem.shapes() | {"do": problem.shapes()["o"]}
    return [generator.normal(size=shapes[name]) for name in names]


def test_defaults_of_a_problem() -> None:
    """Prevents: lengths, heads or a scale that differ from the arguments of make_problem."""
    assert (BATCH.seqlen_q, BATCH.seqlen_k, BATCH.mode) == ((5, 5), (7, 7), "batch")
    assert (BATCH.nhead_q, BATCH.nhead_k, BATCH.hdim_v) == (4, 2, 8)
    assert BATCH.softmax_scale == 0.25
    assert (GROUP.seqlen_q, GROUP.seqlen_k, GROUP.mode) == ((3, 0, 4), (6, 5, 1), "group")
    assert (
        make_problem(
            "fwd", "bf16", seqlen_q=1, seqlen_k=1, nhead_q=1, hdim=8, **asdict(BOTTOM_RIGHT)
        ).mask.window_size_right
        == 0
    )


def test_shapes() -> None:
    """Prevents: arrays of another layout."""
    assert BATCH.shapes() == {
        "q": (2, 5, 4, 16),
        "k": (2, 7, 2, 16),
        "v": (2, 7, 2, 8),
        "o": (2, 5, 4, 8),
        "lse": (2, 4, 5),
    }
    assert BATCH.with_layout(order="bhsd").shapes()["k"] == (2, 2, 7, 16)
    assert GROUP.shapes()["q"] == (7, 2, 16)
    assert GROUP.shapes()["lse"] == (2, 7)


@pytest.mark.parametrize(
    "problem", [BATCH, GROUP, replace(BATCH, **asdict(BOTTOM_RIGHT), logits_soft_cap=2.0)]
)
def test_gradients_match_the_forward(problem: AttentionProblem) -> None:
    """Prevents: a backward reference that differentiates another problem than the forward's."""
    q, k, v, do = arrays(problem, "q", "k", "v", "do")
    found = reference.backward(problem, q, k, v, do)

    def loss(**changes: Any) -> float:
        inputs = {"q": q, "k": k, "v": v} | changes
        return float((reference.forward(problem, **inputs).o * do).sum())

    summed = {
        "q": found.dq,
        "k": _sum_heads(found.dk, k.shape),
        "v": _sum_heads(found.dv, v.shape),
    }
    for name, array in (("q", q), ("k", k), ("v", v)):
        step = np.zeros_like(array)
        place = tuple(n // 2 for n in array.shape)
        step[place] = 1e-5
        slope = (loss(**{name: array + step}) - loss(**{name: array - step})) / 2e-5
        assert slope == pytest.approx(summed[name][place], rel=1e-5, abs=1e-8)


def _sum_heads(gradient: Any, shape: tuple[int, ...]) -> Any:
    """Sum the gradient of K or V over the heads of Q that share a head."""
    *before, heads, hdim = shape
    return gradient.reshape(*before, heads, -1, hdim).sum(axis=-2)


def test_both_layouts_and_intermediates() -> None:
    """Prevents: heads confused with rows, or intermediates of another problem."""
    forward = replace(BATCH, direction="fwd")
    q, k, v = arrays(forward, "q", "k", "v")
    found = reference.forward(forward, q, k, v, intermediates=True)
    transposed = (np.swapaxes(array, 1, 2) for array in (q, k, v))
    other = reference.forward(forward.with_layout(order="bhsd"), *transposed)
    assert np.array_equal(np.swapaxes(other.o, 1, 2), found.o)
    assert np.array_equal(other.lse, found.lse)
    assert other.steps == ()
    assert [steps.p.shape for steps in found.steps] == [(4, 5, 7)] * 2
    assert np.allclose(found.steps[0].p.sum(axis=2), 1)
    backward = reference.backward(BATCH, q, k, v, np.ones(BATCH.shapes()["o"]), intermediates=True)
    assert [steps.ds.shape for steps in backward.steps] == [(4, 5, 7)] * 2
    assert backward.dk.shape == (2, 7, 4, 16)


def test_every_wrong_array_is_named() -> None:
    """Prevents: wrong arrays that NumPy broadcasts, or errors reported one at a time."""
    q, k, v, do = arrays(BATCH, "q", "k", "v", "do")
    with pytest.raises(ProblemError) as error:
        reference.backward(BATCH, k, q, v, do[:1], alibi_slopes=np.ones(4))
    assert [finding.place for finding in error.value.findings] == ["q", "k", "do", "alibi_slopes"]
    with pytest.raises(ProblemError, match="left out"):
        reference.forward(replace(BATCH, direction="fwd", bias_type="alibi"), q, k, v)


@pytest.mark.parametrize("order", ["bshd", "bhsd"])
@pytest.mark.parametrize("rope", ["half", "inter"])
def test_rows_are_appended_and_rotated(rope: str, order: str) -> None:
    """Prevents: rows at a wrong position, or rotated by another position's angle."""
    sizes: dict[str, Any] = {"seqlen_q": 2, "seqlen_k": [7, 5]}
    sizes |= {"nhead_q": 4, "nhead_k": 2, "hdim": 24}
    problem = make_problem(
        "fwd_appendkv", "fp16", **sizes, order=order, seqlen_knew=3, rope_type=rope, rotary_dim=16
    )
    assert (problem.is_group_mode, problem.batch, problem.seqlen_k) == (False, 2, (7, 5))
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=problem.shapes()[name]) for name in ("q", "k", "v"))
    new = [rng.normal(size=replace(problem, seqlen_k=(3, 3)).shapes()[name]) for name in ("k", "v")]
    with pytest.raises(ProblemError) as error:
        reference.append_kv(problem, q, k, v, *new)
    assert [finding.place for finding in error.value.findings] == ["cos", "sin"]
    angles = rng.uniform(0, 7, size=(7, 8))
    found = reference.append_kv(problem, q, k, v, *new, cos=np.cos(angles), sin=np.sin(angles))
    q, k, v, *new = (a if order == "bshd" else a.swapaxes(1, 2) for a in (q, k, v, *new))
    got = [a if order == "bshd" else a.swapaxes(1, 2) for a in (found.q, found.k, found.v)]
    left, right = (
        (slice(0, 8), slice(8, 16)) if rope == "half" else (slice(0, 16, 2), slice(1, 16, 2))
    )
    for sequence, before in enumerate((4, 2)):
        assert np.array_equal(got[1][sequence, :before], k[sequence, :before])
        assert np.array_equal(got[2][sequence, before : before + 3], new[1][sequence])
        assert not got[1][sequence, before + 3 :].any()
        rotation = np.exp(1j * angles[before : before + 3])[:, None]
        for result, row, factor in (
            (got[1][sequence, before : before + 3], new[0][sequence], rotation),
            # Without a mask, all rows of Q have the position of the first new row of K.
            (got[0][sequence], q[sequence], rotation[:1]),
        ):
            numbers = (row[..., left] + 1j * row[..., right]) * factor
            assert np.allclose(result[..., left], numbers.real)
            assert np.allclose(result[..., right], numbers.imag)
            assert np.array_equal(result[..., 16:], row[..., 16:])
