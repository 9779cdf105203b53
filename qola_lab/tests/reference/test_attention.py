"""Properties of the reference: closed forms, finite differences, and invariants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qola_base.formats import F64
from qola_lab.reference.attention import (
    Attention,
    Sequence,
    backward,
    forward,
    gradients,
    summed_up,
)
from qola_lab.reference.dropout import Dropout
from qola_lab.reference.masks import BOTTOM_RIGHT, TOP_LEFT, Mask
from qola_lab.tests.reference.problems import problems, sequence


def test_zero_logits() -> None:
    """Prevents: unequal weights for equal logits, or an LSE to another base."""
    tensors = replace(sequence(np.random.default_rng(1), 3, 5), q=np.zeros((3, 2, 8)))
    found = forward(Attention(1.0), tensors)
    assert np.allclose(found.lse, math.log(5), rtol=1e-15)
    assert np.allclose(found.o, tensors.v.mean(axis=0), rtol=1e-14)
    causal = forward(Attention(1.0, TOP_LEFT), tensors)
    assert np.allclose(causal.lse, np.log([[1, 2, 3]] * 2))
    assert np.allclose(causal.o[1, 0], tensors.v[:2, 0].mean(axis=0))


def test_two_keys() -> None:
    """Prevents: a scale, soft cap, bias or sink that is applied at the wrong step."""
    q, k, v = (np.array(x).reshape(-1, 1, 1) for x in ([2.0], [1.0, -1.0], [1.0, 0.0]))
    tensors = Sequence(q, k, v)

    def share(logit: float) -> float:
        return 1 / (1 + math.exp(-2 * logit))

    assert forward(Attention(0.5), tensors).o.item() == pytest.approx(share(1.0), rel=1e-14)
    capped = forward(Attention(0.5, logits_soft_cap=2.0), tensors)
    assert capped.o.item() == pytest.approx(share(2 * math.tanh(0.5)), rel=1e-14)
    biased = replace(tensors, bias=np.array([[[0.25, -0.25]]]))
    assert forward(Attention(0.5), biased).o.item() == pytest.approx(share(1.25), rel=1e-14)
    capped = forward(Attention(0.5, logits_soft_cap=2.0), biased)
    assert capped.o.item() == pytest.approx(share(2 * math.tanh(0.5) + 0.25), rel=1e-14)
    sink = forward(Attention(0.5), replace(tensors, sink=np.array([0.0])))
    total = math.exp(1) + math.exp(-1) + 1
    assert sink.o.item() == pytest.approx(math.exp(1) / total, rel=1e-14)
    assert sink.lse.item() == pytest.approx(math.log(total), rel=1e-14)


def test_large_logits_do_not_overflow() -> None:
    """Prevents: an overflow in the reference for logits that a kernel can handle."""
    tensors = sequence(np.random.default_rng(2), 4, 6)
    found = forward(Attention(1000.0), tensors)
    assert np.isfinite(found.o).all()
    assert np.isfinite(found.lse).all()


def test_rows_without_keys() -> None:
    """Prevents: NaN where CK writes O = 0 and LSE = -inf, or gradients from rows without keys."""
    tensors = sequence(np.random.default_rng(3), 7, 3)
    attention = Attention(1.0, BOTTOM_RIGHT)
    found = forward(attention, tensors)
    assert np.all(found.o[:4] == 0)
    assert np.all(np.isneginf(found.lse[:, :4]))
    assert np.isfinite(found.lse[:, 4:]).all()
    do = np.random.default_rng(4).normal(size=found.o.shape)
    back = backward(attention, tensors, do)
    assert np.all(back.dq[:4] == 0)
    assert np.all(back.dbias[:, :4] == 0)
    empty = replace(tensors, k=tensors.k[:0], v=tensors.v[:0])
    nothing = forward(Attention(1.0), empty)
    assert np.all(nothing.o == 0)
    assert np.all(np.isneginf(nothing.lse))
    assert np.all(backward(Attention(1.0), empty, do).dq == 0)


@settings(max_examples=60)
@given(problems(longest=6), st.integers(0, 2**32))
def test_gradients_match_finite_differences(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: a gradient that misses a path through P."""
    attention, tensors = problem
    generator = np.random.default_rng(seed)
    do = generator.normal(size=(len(tensors.q), tensors.heads, tensors.v.shape[2]))
    back = backward(attention, tensors, do)
    heads_k = tensors.k.shape[1]
    found: dict[str, F64] = {
        "q": back.dq,
        "k": summed_up(back.dk, heads_k),
        "v": summed_up(back.dv, heads_k),
    }
    if tensors.bias is not None:
        is_shared = tensors.bias.shape[0] == 1
        found["bias"] = back.dbias.sum(axis=0, keepdims=True) if is_shared else back.dbias
    for name, gradient in found.items():
        value: F64 = getattr(tensors, name)
        direction = generator.normal(size=value.shape)
        small = 1e-5

        changes: list[dict[str, Any]] = [{name: value + s * small * direction} for s in (1, -1)]
        plus, minus = ((forward(attention, replace(tensors, **c)).o * do).sum() for c in changes)
        slope = (plus - minus) / (2 * small)
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7), name


@given(problems(), st.floats(-50, 50))
def test_adding_a_constant_to_all_logits(
    problem: tuple[Attention, Sequence], constant: float
) -> None:
    """Prevents: a softmax whose O depends on a constant that is added to all logits."""
    attention, tensors = replace(problem[0], logits_soft_cap=0.0), replace(problem[1], sink=None)
    bias = np.zeros((1, len(tensors.q), len(tensors.k))) if tensors.bias is None else tensors.bias
    plain = forward(attention, replace(tensors, bias=bias))
    shifted = forward(attention, replace(tensors, bias=bias + constant))
    assert np.allclose(plain.o, shifted.o, rtol=1e-10, atol=1e-12)
    assert np.allclose(plain.lse + constant, shifted.lse, rtol=1e-10, atol=1e-10)


@given(problems())
def test_an_unlimited_window_equals_no_mask(problem: tuple[Attention, Sequence]) -> None:
    """Prevents: an unlimited window that hides keys."""
    attention, tensors = problem
    if tensors.alibi_slopes is not None:  # alibi's diagonal is the mask's
        return
    wide = replace(attention, mask=Mask("bottom_right", -1, -1))
    none = replace(attention, mask=Mask())
    assert np.array_equal(forward(wide, tensors).o, forward(none, tensors).o)


def test_both_forms_of_causal_alibi_have_equal_o() -> None:
    """Prevents: an O that depends on which of CK's two forms of ALiBi is used."""
    tensors = sequence(np.random.default_rng(5), 5, 9)
    slopes = np.array([0.5, 0.25])
    causal = Attention(1.0, BOTTOM_RIGHT)
    found = forward(causal, replace(tensors, alibi_slopes=slopes))
    distance = np.arange(5)[:, None] + 4 - np.arange(9)
    symmetric = forward(causal, replace(tensors, bias=-slopes[:, None, None] * np.abs(distance)))
    assert np.allclose(found.o, symmetric.o, rtol=1e-13)
    assert np.allclose(found.lse - symmetric.lse, slopes[:, None] * (np.arange(5) + 4), rtol=1e-12)


def test_adjacent_heads_of_q_share_a_head_of_k() -> None:
    """Prevents: heads of Q assigned to heads of K in turn, instead of in adjacent groups."""
    tensors = sequence(np.random.default_rng(6), 3, 4, heads=6, heads_k=2)
    all_heads = forward(Attention(1.0), tensors).o
    for head in range(6):
        one_head = Sequence(
            tensors.q[:, head : head + 1],
            tensors.k[:, head // 3 : head // 3 + 1],
            tensors.v[:, head // 3 : head // 3 + 1],
        )
        assert np.allclose(
            all_heads[:, head], forward(Attention(1.0), one_head).o[:, 0], rtol=1e-14
        )


@given(problems(), st.integers(0, 2**32))
def test_backward_uses_the_stored_o_and_lse(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: a backward that recomputes O or LSE although a kernel reads the stored ones."""
    attention, tensors = problem
    do = np.random.default_rng(seed).normal(
        size=(len(tensors.q), tensors.heads, tensors.v.shape[2])
    )
    stored = forward(attention, tensors)
    recomputed, from_stored = (
        backward(attention, tensors, do),
        backward(attention, tensors, do, stored.o, stored.lse),
    )
    for name in ("dq", "dk", "dv", "dbias"):
        assert np.allclose(
            getattr(recomputed, name), getattr(from_stored, name), rtol=1e-9, atol=1e-12
        ), name
    delta, other = (
        gradients(attention, tensors, do, stored.o + n, stored.lse).delta for n in (0, 1)
    )
    assert np.allclose(other - delta, do.sum(axis=2).T, rtol=1e-8, atol=1e-9)


@settings(max_examples=40)
@given(problems())
def test_dropout_keeps_the_mean(problem: tuple[Attention, Sequence]) -> None:
    """Prevents: dropout's factor applied to LSE, or missing in O."""
    attention, tensors = problem
    plain = forward(replace(attention, dropout=None), tensors)
    results = [forward(replace(attention, dropout=Dropout(0.5, n)), tensors) for n in range(200)]
    assert all(np.array_equal(result.lse, plain.lse) for result in results)
    mean = np.mean([result.o for result in results], axis=0)
    largest = float(np.abs(tensors.v).max())
    assert np.abs(mean - plain.o).max() <= 6 * largest / math.sqrt(200) * math.sqrt(2)
