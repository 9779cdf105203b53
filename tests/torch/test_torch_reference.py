"""The reference against PyTorch: its attention, and its gradients of what is written here in it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qola.reference.attention import Attention, Sequence, backward, forward, summed_up
from qola.reference.formats import BF16, FP16, rounded
from tests.reference.problems import problems

settings.register_profile("same", database=None, deadline=None, derandomize=True, max_examples=300)
settings.load_profile("same")
torch.set_num_threads(1)

SEEDS = st.integers(0, 2**32)


def leaves(of: Sequence) -> dict[str, Any]:
    """Tensors of the sequence; the reference has gradients of all but the sink."""
    values = {name: getattr(of, name) for name in ("q", "k", "v", "bias", "sink")}
    return {
        name: torch.tensor(value, requires_grad=True)
        for name, value in values.items()
        if value is not None
    }


def hidden(attention: Attention, rows: int, columns: int) -> Any:
    """True where a key is not seen, by PyTorch's own triangles."""
    mask = attention.mask
    shift = columns - rows if mask.mask_type == "bottom_right" else 0
    whole = torch.ones(rows, columns, dtype=torch.bool)
    found = torch.zeros_like(whole)
    if mask.mask_type != "no" and mask.window_size_right >= 0:
        found |= torch.triu(whole, shift + mask.window_size_right + 1)
    if mask.mask_type != "no" and mask.window_size_left >= 0:
        found |= torch.tril(whole, shift - mask.window_size_left - 1)
    return found


def logits_in_torch(attention: Attention, of: Sequence, tensors: dict[str, Any]) -> Any:
    groups = of.heads // of.k.shape[1]
    k = tensors["k"].repeat_interleave(groups, dim=1)
    found = torch.einsum("ihd,jhd->hij", tensors["q"], k) * attention.softmax_scale
    if attention.logits_soft_cap:
        found = attention.logits_soft_cap * torch.tanh(found / attention.logits_soft_cap)
    if "bias" in tensors:
        found = found + tensors["bias"]
    rows, columns = len(of.q), len(of.k)
    if of.alibi_slopes is not None:
        column = torch.arange(columns)
        if attention.mask.mask_type != "no" and (
            attention.mask.window_size_left,
            attention.mask.window_size_right,
        ) == (-1, 0):
            position = column.expand(rows, columns)
        else:
            shift = 0 if attention.mask.mask_type == "top_left" else columns - rows
            position = -(torch.arange(rows)[:, None] + shift - column).abs()
        found = found + torch.tensor(of.alibi_slopes)[:, None, None] * position
    return found.masked_fill(hidden(attention, rows, columns), -math.inf)


def attention_in_torch(
    attention: Attention, of: Sequence, tensors: dict[str, Any]
) -> tuple[Any, Any]:
    """O and LSE, by PyTorch's softmax; rows without keys have O = 0."""
    logits = logits_in_torch(attention, of, tensors)
    if "sink" in tensors:
        sink = tensors["sink"][:, None, None].expand(*logits.shape[:2], 1)
        logits = torch.cat([logits, sink], dim=2)
    none = torch.isneginf(logits).all(dim=2, keepdim=True)
    lse = torch.logsumexp(logits, dim=2)
    p = torch.softmax(logits.masked_fill(none, 0.0), dim=2).masked_fill(none, 0.0)
    p = p[..., : len(of.k)]
    if attention.dropout is not None:
        factors = attention.dropout.factors(of.number, of.heads, len(of.q), len(of.k))
        p = p * torch.tensor(factors)
    groups = of.heads // of.v.shape[1]
    return torch.einsum("hij,jhd->ihd", p, tensors["v"].repeat_interleave(groups, dim=1)), lse


@given(problems(), SEEDS)
def test_softmax_and_autograd(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: a reference that is wrong in the same way as the tests beside it."""
    attention, of = problem
    tensors = leaves(of)
    o, lse = attention_in_torch(attention, of, tensors)
    found = forward(attention, of)
    assert np.allclose(found.o, o.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert np.allclose(found.lse, lse.detach().numpy(), rtol=1e-10, atol=1e-12)
    do = np.random.default_rng(seed).normal(size=found.o.shape)
    o.backward(torch.tensor(do))
    back = backward(attention, of, do)
    heads_k = of.k.shape[1]
    gradients = {
        "q": back.dq,
        "k": summed_up(back.dk, heads_k),
        "v": summed_up(back.dv, heads_k),
        "bias": back.dbias,
    }
    for name in tensors.keys() & gradients.keys():
        expected, gradient = tensors[name].grad.numpy(), gradients[name]
        if name == "bias" and len(expected) == 1:
            gradient = gradient.sum(axis=0, keepdims=True)
        assert np.allclose(gradient, expected, rtol=1e-8, atol=1e-11), name


@given(problems(longest=24), SEEDS)
def test_scaled_dot_product_attention(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: a tensor of the reference that PyTorch's own attention reads in another way."""
    attention, of = (
        replace(problem[0], logits_soft_cap=0.0, dropout=None),
        replace(problem[1], sink=None),
    )
    tensors = leaves(of)
    # As a bias with masks and alibi in it, which is how PyTorch takes them.
    zero = {name: torch.zeros_like(x) if name in "qk" else x for name, x in tensors.items()}
    more = logits_in_torch(attention, of, zero).detach()
    seen = forward(attention, of)
    # PyTorch gives NaN or a mean to rows without keys, depending on its version.
    rows = torch.tensor(np.isfinite(seen.lse))
    q, k, v = (tensors[name].transpose(0, 1)[None] for name in "qkv")
    o = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=more[None], scale=attention.softmax_scale, enable_gqa=True
    )[0]
    expected = torch.where(rows[..., None], o, 0.0)
    assert np.allclose(seen.o, expected.transpose(0, 1).detach().numpy(), rtol=1e-10, atol=1e-12)
    if not bool(rows.all()):
        return
    do = np.random.default_rng(seed).normal(size=seen.o.shape)
    o.backward(torch.tensor(do).transpose(0, 1))
    back = backward(attention, of, do)
    heads_k = of.k.shape[1]
    for name, gradient in (
        ("q", back.dq),
        ("k", summed_up(back.dk, heads_k)),
        ("v", summed_up(back.dv, heads_k)),
    ):
        assert np.allclose(gradient, tensors[name].grad.numpy(), rtol=1e-8, atol=1e-11), name


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_rounding(values: list[float]) -> None:
    """Prevents: bf16 and fp16 that are not what frameworks hand to kernels."""
    # Through float32, as there: rounded twice.
    single = np.array(values).astype(np.float32)
    for of, dtype in ((BF16, torch.bfloat16), (FP16, torch.float16)):
        expected = torch.tensor(single).to(dtype).double().numpy()
        assert np.array_equal(rounded(single, of), expected)
