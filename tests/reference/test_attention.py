"""The reference by itself: closed forms, differences, and what has to be the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qola.reference.attention import (
    Attention,
    Sequence,
    backward,
    forward,
    gradients,
    summed_up,
)
from qola.reference.dropout import Dropout
from qola.reference.formats import F64
from qola.reference.masks import BOTTOM_RIGHT, TOP_LEFT, Mask
from tests.reference.problems import problems, sequence


def test_no_scores() -> None:
    """Prevents: weights that are not equal where all keys are alike, or LSE to another base."""
    of = replace(sequence(np.random.default_rng(1), 3, 5), q=np.zeros((3, 2, 8)))
    found = forward(Attention(1.0), of)
    assert np.allclose(found.lse, math.log(5), rtol=1e-15)
    assert np.allclose(found.o, of.v.mean(axis=0), rtol=1e-14)
    causal = forward(Attention(1.0, TOP_LEFT), of)
    assert np.allclose(causal.lse, np.log([[1, 2, 3]] * 2))
    assert np.allclose(causal.o[1, 0], of.v[:2, 0].mean(axis=0))


def test_two_keys() -> None:
    """Prevents: a scale, a soft cap or a bias in the wrong place."""
    q, k, v = (np.array(x).reshape(-1, 1, 1) for x in ([2.0], [1.0, -1.0], [1.0, 0.0]))
    of = Sequence(q, k, v)

    def share(logit: float) -> float:
        return 1 / (1 + math.exp(-2 * logit))

    assert forward(Attention(0.5), of).o.item() == pytest.approx(share(1.0), rel=1e-14)
    capped = forward(Attention(0.5, logits_soft_cap=2.0), of)
    assert capped.o.item() == pytest.approx(share(2 * math.tanh(0.5)), rel=1e-14)
    biased = replace(of, bias=np.array([[[0.25, -0.25]]]))
    assert forward(Attention(0.5), biased).o.item() == pytest.approx(share(1.25), rel=1e-14)
    capped = forward(Attention(0.5, logits_soft_cap=2.0), biased)
    assert capped.o.item() == pytest.approx(share(2 * math.tanh(0.5) + 0.25), rel=1e-14)
    sink = forward(Attention(0.5), replace(of, sink=np.array([0.0])))
    total = math.exp(1) + math.exp(-1) + 1
    assert sink.o.item() == pytest.approx(math.exp(1) / total, rel=1e-14)
    assert sink.lse.item() == pytest.approx(math.log(total), rel=1e-14)


def test_large_logits_do_not_overflow() -> None:
    """Prevents: a reference that is infinite where a kernel is right."""
    of = sequence(np.random.default_rng(2), 4, 6)
    found = forward(Attention(1000.0), of)
    assert np.isfinite(found.o).all()
    assert np.isfinite(found.lse).all()


def test_rows_without_keys() -> None:
    """Prevents: NaN where CK writes O = 0 and LSE = -inf, and gradients from such rows."""
    of = sequence(np.random.default_rng(3), 7, 3)
    attention = Attention(1.0, BOTTOM_RIGHT)
    found = forward(attention, of)
    assert np.all(found.o[:4] == 0)
    assert np.all(np.isneginf(found.lse[:, :4]))
    assert np.isfinite(found.lse[:, 4:]).all()
    do = np.random.default_rng(4).normal(size=found.o.shape)
    back = backward(attention, of, do)
    assert np.all(back.dq[:4] == 0)
    assert np.all(back.dbias[:, :4] == 0)
    empty = replace(of, k=of.k[:0], v=of.v[:0])
    nothing = forward(Attention(1.0), empty)
    assert np.all(nothing.o == 0)
    assert np.all(np.isneginf(nothing.lse))
    assert np.all(backward(Attention(1.0), empty, do).dq == 0)


@settings(max_examples=60)
@given(problems(longest=6), st.integers(0, 2**32))
def test_gradients_are_differences(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: a gradient that leaves out a path through P."""
    attention, of = problem
    generator = np.random.default_rng(seed)
    do = generator.normal(size=(len(of.q), of.heads, of.v.shape[2]))
    back = backward(attention, of, do)
    heads_k = of.k.shape[1]
    found: dict[str, F64] = {
        "q": back.dq,
        "k": summed_up(back.dk, heads_k),
        "v": summed_up(back.dv, heads_k),
    }
    if of.bias is not None:
        one = of.bias.shape[0] == 1
        found["bias"] = back.dbias.sum(axis=0, keepdims=True) if one else back.dbias
    for name, gradient in found.items():
        value: F64 = getattr(of, name)
        along = generator.normal(size=value.shape)
        small = 1e-5

        changes: list[dict[str, Any]] = [{name: value + s * small * along} for s in (1, -1)]
        plus, minus = ((forward(attention, replace(of, **c)).o * do).sum() for c in changes)
        slope = (plus - minus) / (2 * small)
        assert float((gradient * along).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


@given(problems(), st.floats(-50, 50))
def test_a_number_added_to_a_row(problem: tuple[Attention, Sequence], more: float) -> None:
    """Prevents: a softmax that is not one: what all keys have in common changes LSE alone."""
    attention, of = replace(problem[0], logits_soft_cap=0.0), replace(problem[1], sink=None)
    bias = np.zeros((1, len(of.q), len(of.k))) if of.bias is None else of.bias
    plain = forward(attention, replace(of, bias=bias))
    moved = forward(attention, replace(of, bias=bias + more))
    assert np.allclose(plain.o, moved.o, rtol=1e-10, atol=1e-12)
    assert np.allclose(plain.lse + more, moved.lse, rtol=1e-10, atol=1e-10)


@given(problems())
def test_a_window_of_everything_is_no_mask(problem: tuple[Attention, Sequence]) -> None:
    """Prevents: a window that hides keys that no one asked it to hide."""
    attention, of = problem
    if of.alibi_slopes is not None:  # alibi's diagonal is the mask's
        return
    wide = replace(attention, mask=Mask("bottom_right", -1, -1))
    none = replace(attention, mask=Mask())
    assert np.array_equal(forward(wide, of).o, forward(none, of).o)


def test_alibi_of_a_causal_mask_is_another_number_for_each_row() -> None:
    """Prevents: an O that depends on which of the two forms of alibi CK takes."""
    of = sequence(np.random.default_rng(5), 5, 9)
    slopes = np.array([0.5, 0.25])
    causal = Attention(1.0, BOTTOM_RIGHT)
    found = forward(causal, replace(of, alibi_slopes=slopes))
    distance = np.arange(5)[:, None] + 4 - np.arange(9)
    usual = forward(causal, replace(of, bias=-slopes[:, None, None] * np.abs(distance)))
    assert np.allclose(found.o, usual.o, rtol=1e-13)
    assert np.allclose(found.lse - usual.lse, slopes[:, None] * (np.arange(5) + 4), rtol=1e-12)


def test_heads_share_neighbours() -> None:
    """Prevents: heads of Q that are dealt out in turn to those of K."""
    of = sequence(np.random.default_rng(6), 3, 4, heads=6, heads_k=2)
    whole = forward(Attention(1.0), of).o
    for head in range(6):
        alone = Sequence(
            of.q[:, head : head + 1],
            of.k[:, head // 3 : head // 3 + 1],
            of.v[:, head // 3 : head // 3 + 1],
        )
        assert np.allclose(whole[:, head], forward(Attention(1.0), alone).o[:, 0], rtol=1e-14)


@given(problems(), st.integers(0, 2**32))
def test_a_backward_reads_what_a_forward_left(
    problem: tuple[Attention, Sequence], seed: int
) -> None:
    """Prevents: a backward that computes O or LSE of its own where a kernel reads them."""
    attention, of = problem
    do = np.random.default_rng(seed).normal(size=(len(of.q), of.heads, of.v.shape[2]))
    left = forward(attention, of)
    own, read = backward(attention, of, do), backward(attention, of, do, left.o, left.lse)
    for name in ("dq", "dk", "dv", "dbias"):
        assert np.allclose(getattr(own, name), getattr(read, name), rtol=1e-9, atol=1e-12), name
    delta, other = (gradients(attention, of, do, left.o + n, left.lse).delta for n in (0, 1))
    assert np.allclose(other - delta, do.sum(axis=2).T, rtol=1e-8, atol=1e-9)


@settings(max_examples=40)
@given(problems())
def test_dropout_keeps_the_mean(problem: tuple[Attention, Sequence]) -> None:
    """Prevents: a factor of dropout in LSE, or one that is missing in O."""
    attention, of = problem
    plain = forward(replace(attention, dropout=None), of)
    many = [forward(replace(attention, dropout=Dropout(0.5, n)), of) for n in range(200)]
    assert all(np.array_equal(one.lse, plain.lse) for one in many)
    mean = np.mean([one.o for one in many], axis=0)
    largest = float(np.abs(of.v).max())
    assert np.abs(mean - plain.o).max() <= 6 * largest / math.sqrt(200) * math.sqrt(2)
