"""The reference against PyTorch: its attention, and autograd of the reference's formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qola_base.formats import BF16, FP16, rounded
from qola_lab.reference.attention import Attention, Sequence, backward, forward, summed_up
from qola_lab.tests.reference.problems import problems

settings.register_profile("same", database=None, deadline=None, derandomize=True, max_examples=300)
settings.load_profile("same")
torch.set_num_threads(1)

SEEDS = st.integers(0, 2**32)


def make_tensors(sequence: Sequence) -> dict[str, Any]:
    """Return tensors of the sequence; the reference has gradients of all but the sink."""
    values = {name: getattr(sequence, name) for name in ("q", "k", "v", "bias", "sink")}
    return {
        name: torch.tensor(value, requires_grad=True)
        for name, value in values.items()
        if value is not None
    }


def hidden_keys(attention: Attention, rows: int, columns: int) -> Any:
    """Return a mask [rows, columns], True for hidden keys, by PyTorch's triu and tril."""
    mask = attention.mask
    shift = columns - rows if mask.mask_type == "bottom_right" else 0
    all_keys = torch.ones(rows, columns, dtype=torch.bool)
    mask_out = torch.zeros_like(all_keys)
    if mask.mask_type != "no" and mask.window_size_right >= 0:
        mask_out |= torch.triu(all_keys, shift + mask.window_size_right + 1)
    if mask.mask_type != "no" and mask.window_size_left >= 0:
        mask_out |= torch.tril(all_keys, shift - mask.window_size_left - 1)
    return mask_out


def logits_in_torch(attention: Attention, sequence: Sequence, tensors: dict[str, Any]) -> Any:
    groups = sequence.heads // sequence.k.shape[1]
    k = tensors["k"].repeat_interleave(groups, dim=1)
    logits = torch.einsum("ihd,jhd->hij", tensors["q"], k) * attention.softmax_scale
    if attention.logits_soft_cap:
        logits = attention.logits_soft_cap * torch.tanh(logits / attention.logits_soft_cap)
    if "bias" in tensors:
        logits = logits + tensors["bias"]
    rows, columns = len(sequence.q), len(sequence.k)
    if sequence.alibi_slopes is not None:
        column = torch.arange(columns)
        if attention.mask.mask_type != "no" and (
            attention.mask.window_size_left,
            attention.mask.window_size_right,
        ) == (-1, 0):
            position = column.expand(rows, columns)
        else:
            shift = 0 if attention.mask.mask_type == "top_left" else columns - rows
            position = -(torch.arange(rows)[:, None] + shift - column).abs()
        logits = logits + torch.tensor(sequence.alibi_slopes)[:, None, None] * position
    return logits.masked_fill(hidden_keys(attention, rows, columns), -math.inf)


def attention_in_torch(
    attention: Attention, sequence: Sequence, tensors: dict[str, Any]
) -> tuple[Any, Any]:
    """Return O and LSE by PyTorch's softmax; rows without keys have O = 0."""
    logits = logits_in_torch(attention, sequence, tensors)
    if "sink" in tensors:
        sink = tensors["sink"][:, None, None].expand(*logits.shape[:2], 1)
        logits = torch.cat([logits, sink], dim=2)
    without_keys = torch.isneginf(logits).all(dim=2, keepdim=True)
    lse = torch.logsumexp(logits, dim=2)
    p = torch.softmax(logits.masked_fill(without_keys, 0.0), dim=2).masked_fill(without_keys, 0.0)
    p = p[..., : len(sequence.k)]
    if attention.dropout is not None:
        factors = attention.dropout.factors(
            sequence.number, sequence.heads, len(sequence.q), len(sequence.k)
        )
        p = p * torch.tensor(factors)
    groups = sequence.heads // sequence.v.shape[1]
    return torch.einsum("hij,jhd->ihd", p, tensors["v"].repeat_interleave(groups, dim=1)), lse


@given(problems(), SEEDS)
def test_softmax_and_autograd(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: the reference and its other tests contain the same error."""
    attention, sequence = problem
    tensors = make_tensors(sequence)
    o, lse = attention_in_torch(attention, sequence, tensors)
    result = forward(attention, sequence)
    assert np.allclose(result.o, o.detach().numpy(), rtol=1e-10, atol=1e-12)
    assert np.allclose(result.lse, lse.detach().numpy(), rtol=1e-10, atol=1e-12)
    do = np.random.default_rng(seed).normal(size=result.o.shape)
    o.backward(torch.tensor(do))
    grads = backward(attention, sequence, do)
    heads_k = sequence.k.shape[1]
    gradients = {
        "q": grads.dq,
        "k": summed_up(grads.dk, heads_k),
        "v": summed_up(grads.dv, heads_k),
        "bias": grads.dbias,
    }
    for name in tensors.keys() & gradients.keys():
        expected, gradient = tensors[name].grad.numpy(), gradients[name]
        if name == "bias" and len(expected) == 1:
            gradient = gradient.sum(axis=0, keepdims=True)
        assert np.allclose(gradient, expected, rtol=1e-8, atol=1e-11), name


@given(problems(longest=24), SEEDS)
def test_scaled_dot_product_attention(problem: tuple[Attention, Sequence], seed: int) -> None:
    """Prevents: PyTorch's attention interprets a tensor of the reference differently."""
    attention, sequence = (
        replace(problem[0], logits_soft_cap=0.0, dropout=None),
        replace(problem[1], sink=None),
    )
    tensors = make_tensors(sequence)
    # PyTorch's attn_mask is a bias, with masks and alibi added.
    zero = {name: torch.zeros_like(x) if name in "qk" else x for name, x in tensors.items()}
    bias = logits_in_torch(attention, sequence, zero).detach()
    result = forward(attention, sequence)
    # For rows without keys, PyTorch returns NaN or a mean, depending on its version.
    rows = torch.tensor(np.isfinite(result.lse))
    q, k, v = (tensors[name].transpose(0, 1)[None] for name in "qkv")
    o = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias[None], scale=attention.softmax_scale, enable_gqa=True
    )[0]
    expected = torch.where(rows[..., None], o, 0.0)
    assert np.allclose(result.o, expected.transpose(0, 1).detach().numpy(), rtol=1e-10, atol=1e-12)
    if not bool(rows.all()):
        return
    do = np.random.default_rng(seed).normal(size=result.o.shape)
    o.backward(torch.tensor(do).transpose(0, 1))
    grads = backward(attention, sequence, do)
    heads_k = sequence.k.shape[1]
    for name, gradient in (
        ("q", grads.dq),
        ("k", summed_up(grads.dk, heads_k)),
        ("v", summed_up(grads.dv, heads_k)),
    ):
        assert np.allclose(gradient, tensors[name].grad.numpy(), rtol=1e-8, atol=1e-11), name


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_rounding(values: list[float]) -> None:
    """Prevents: the reference rounds to bf16 and fp16 differently than frameworks."""
    # Frameworks round twice: to float32, then to bf16 or fp16.
    single = np.array(values).astype(np.float32)
    for number_format, dtype in ((BF16, torch.bfloat16), (FP16, torch.float16)):
        expected = torch.tensor(single).to(dtype).double().numpy()
        assert np.array_equal(rounded(single, number_format), expected)
