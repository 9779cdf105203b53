"""Attention problems: random inputs, a call of an entry point, and errors against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qola.emulate.hip import Hip

Array = NDArray[Any]
Call = Callable[[str, Mapping[str, Any]], float]


@dataclass(frozen=True)
class Problem:
    """Lengths and heads of one sequence; without a mask."""

    dtype: str
    dim: int
    rows_q: int
    rows_k: int
    heads_q: int = 2
    heads_k: int = 1

    def encode(self, values: Array) -> Array:
        """Numbers in the problem's type; bf16 as its bits."""
        if self.dtype == "fp16":
            return values.astype(np.float16)
        rounded = values.astype(np.float32).view(np.uint32) + np.uint32(0x8000)
        return (rounded >> np.uint32(16)).astype(np.uint16)

    def decode(self, values: Array) -> Array:
        """The numbers as float64."""
        if self.dtype == "fp16":
            return values.astype(np.float64)
        bits = values.astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).astype(np.float64)


def _tensors(problem: Problem) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    q, k = (problem.rows_q, problem.heads_q), (problem.rows_k, problem.heads_k)
    shapes = {"q": q, "k": k, "v": k, "do": q}
    return {
        name: problem.encode(rng.standard_normal((1, *shape, problem.dim)))
        for name, shape in shapes.items()
    }


def _expected(problem: Problem, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Results and gradients; a head of dK and dV for each of Q, as the entry points have them."""
    q, do = (problem.decode(tensors[name])[0] for name in ("q", "do"))
    share = problem.heads_q // problem.heads_k
    k, v = (np.repeat(problem.decode(tensors[name])[0], share, axis=1) for name in ("k", "v"))
    scale = 1 / math.sqrt(problem.dim)
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    p = weights / total
    o = np.einsum("hqk,khd->qhd", p, v)
    dp = np.einsum("qhd,khd->hqk", do, v)
    ds = p * (dp - np.einsum("qhd,qhd->hq", do, o)[..., None])
    return {
        "lse": (np.log(total) + top)[..., 0],
        "o": o,
        "dq": np.einsum("hqk,khd->qhd", ds, k) * scale,
        "dk": np.einsum("hqk,qhd->khd", ds, q) * scale,
        "dv": np.einsum("hqk,qhd->khd", p, do),
    }


def _common(hip: Hip, problem: Problem, tensors: Mapping[str, Array]) -> dict[str, Any]:
    rows = problem.rows_q
    values: dict[str, Any] = {
        "q_dtype_str": problem.dtype,
        "is_group_mode": False,
        "mask_type": 0,
        "bias_type": 0,
        "use_ext_asm": False,
        "batch": 1,
        "nhead_q": problem.heads_q,
        "nhead_k": problem.heads_k,
        "hdim_q": problem.dim,
        "hdim_v": problem.dim,
        "seqlen_q": rows,
        "seqlen_k": problem.rows_k,
        "max_seqlen_q": rows,
        "window_size_left": -1,
        "window_size_right": -1,
    }
    for name in ("q", "k", "v"):
        values |= hip.allocate(tensors[name]).tensor(name)
    return values


def forward(hip: Hip, call: Call, problem: Problem) -> dict[str, float]:
    """Run a forward; the largest error of O and LSE."""
    tensors = _tensors(problem)
    wanted = _expected(problem, tensors)
    o = hip.allocate(np.zeros_like(tensors["q"]))
    lse = hip.allocate(np.full(wanted["lse"].shape, np.nan, np.float32))
    values = _common(hip, problem, tensors) | o.tensor("o")
    values |= {"lse_ptr": lse, "has_lse": True, "scale_s": 1 / math.sqrt(problem.dim)}
    values |= {"scale_p": 1, "scale_o": 1, "nhead_stride_lse": problem.rows_q}
    values |= {"batch_stride_lse": problem.heads_q * problem.rows_q}
    assert call("mha_fwd", values) >= 0
    return {
        "o": float(np.abs(problem.decode(o.array)[0] - wanted["o"]).max()),
        "lse": float(np.abs(lse.array - wanted["lse"]).max()),
    }


def backward(hip: Hip, call: Call, problem: Problem) -> dict[str, float]:
    """Run a backward; the largest error of each gradient."""
    tensors = _tensors(problem)
    wanted = _expected(problem, tensors)
    rows, heads, dim = problem.rows_q, problem.heads_q, problem.dim
    values = _common(hip, problem, tensors)
    values |= hip.allocate(tensors["do"]).tensor("do")
    values |= hip.allocate(problem.encode(wanted["o"])[None]).tensor("o")
    gradients = {
        name: hip.allocate(np.zeros((1, length, heads, dim), tensors["q"].dtype))
        for name, length in (("dq", rows), ("dk", problem.rows_k), ("dv", problem.rows_k))
    }
    for name, gradient in gradients.items():
        values |= gradient.tensor(name)
    values |= {
        "lse_ptr": hip.allocate(wanted["lse"].astype(np.float32)),
        "d_ptr": hip.allocate(np.zeros((heads, rows), np.float32)),
        "dq_acc_ptr": hip.allocate(np.zeros((heads, rows, dim), np.float32)),
        "stride_dq_acc": dim,
        "nhead_stride_dq_acc": rows * dim,
        "batch_stride_dq_acc": heads * rows * dim,
        "split_stride_dq_acc": heads * rows * dim,
        "nhead_stride_lsed": rows,
        "batch_stride_lsed": heads * rows,
        "max_seqlen_k": problem.rows_k,
        "scale": 1 / math.sqrt(dim),
        "p_undrop": 1,
        "how_v3_bf16_cvt": 1,
        "is_v3_atomic_fp32": True,
    }
    assert call("mha_bwd", values) >= 0
    return {
        name: float(np.abs(problem.decode(gradient.array)[0] - wanted[name]).max())
        for name, gradient in gradients.items()
    }
