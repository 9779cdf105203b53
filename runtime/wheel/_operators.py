"""The torch operators `mha_fwd` and `mha_bwd`, which call the C functions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.library import define, impl, register_autograd, register_fake

from . import _c

_SPACE = (__package__ or "qola").replace(".", "_")
_DTYPES = {torch.float16: _c.FP16, torch.bfloat16: _c.BF16, torch.float32: _c.FP32}


class _Inputs(NamedTuple):
    """Common arguments of both operators, in the order of _PROBLEM."""

    bias: torch.Tensor | None
    alibi_slopes: torch.Tensor | None
    sink: torch.Tensor | None
    cu_seqlens_q: torch.Tensor | None
    cu_seqlens_k: torch.Tensor | None
    rng: torch.Tensor | None
    max_seqlen_q: int
    max_seqlen_k: int
    mask: int
    window_left: int
    window_right: int
    scale: float
    dropout_p: float
    logits_soft_cap: float
    deterministic: bool


_PROBLEM = (
    "Tensor? bias, Tensor? alibi_slopes, Tensor? sink, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "Tensor? rng, SymInt max_seqlen_q, SymInt max_seqlen_k, int mask, SymInt window_left, "
    "SymInt window_right, float scale, float dropout_p, float logits_soft_cap, bool deterministic"
)
#: Number of tensors in _PROBLEM; they come first.
_TENSORS = 6


class _Gpu:
    """Device functions of torch; tests replace them."""

    def check(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cuda" or torch.version.hip is None:
            note = "" if torch.version.hip else f" (torch {torch.__version__} lacks ROCm)"
            raise RuntimeError(
                f"{_SPACE}: {name} is on {tensor.device}{note}, but these kernels only run on AMD "
                'GPUs: move it there, .to("cuda") with a torch for ROCm, or call '
                "torch.nn.functional.scaled_dot_product_attention"
            )

    def current(self, tensors: list[torch.Tensor]) -> AbstractContextManager[Any]:
        """Make the tensors' device the current one."""
        device: AbstractContextManager[Any] = torch.cuda.device(tensors[0].device)
        return device

    def stream(self, device: torch.device) -> int:
        return int(torch.cuda.current_stream(device).cuda_stream)


_gpu = _Gpu()


class _Call:
    """A call of a C function: its arguments, and the tensors that they point to."""

    def __init__(
        self, entry: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: _Inputs
    ) -> None:
        self._entry = entry
        self.group = problem.cu_seqlens_q is not None
        self.args = _c.Arguments(
            dtype=_DTYPES[q.dtype],
            mask=problem.mask,
            group=int(self.group),
            deterministic=int(problem.deterministic),
            batch=q.size(0),
            nhead_q=q.size(1),
            nhead_k=k.size(1),
            seqlen_q=q.size(-2),
            seqlen_k=k.size(-2),
            hdim_q=q.size(-1),
            hdim_v=v.size(-1),
            window_left=problem.window_left,
            window_right=problem.window_right,
            scale=problem.scale,
            dropout=problem.dropout_p,
            logits_soft_cap=problem.logits_soft_cap,
        )
        self.held: list[torch.Tensor] = []
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            self.rows(name, tensor)
        if problem.cu_seqlens_q is not None and problem.cu_seqlens_k is not None:
            self.args.batch = problem.cu_seqlens_q.numel() - 1
            self.args.seqlen_q, self.args.seqlen_k = q.size(0), k.size(0)
            self.args.max_seqlen_q = problem.max_seqlen_q
            self.args.max_seqlen_k = problem.max_seqlen_k
            self.args.seqstart_q = self.address(problem.cu_seqlens_q.contiguous())
            self.args.seqstart_k = self.address(problem.cu_seqlens_k.contiguous())
        if problem.bias is not None:
            self.args.bias_type = _c.BIAS_ELEMENTWISE
            whole = (q.size(0), q.size(1), q.size(2), k.size(2))
            # Rows are contiguous; batch and head may be broadcast.
            rows = problem.bias.expand(*problem.bias.shape[:-2], *whole[2:]).contiguous()
            self.rows("bias", rows.expand(whole))
        elif problem.alibi_slopes is not None:
            self.args.bias_type = _c.BIAS_ALIBI
            slopes = problem.alibi_slopes.contiguous()
            self.args.bias.data = self.address(slopes)
            self.args.bias.stride_batch = slopes.size(-1) if slopes.dim() == 2 else 0
        if problem.sink is not None:
            self.args.sink = self.address(problem.sink.contiguous())
        if problem.rng is not None:
            self.args.drop_seed_ptr = self.address(problem.rng.contiguous())
            self.args.drop_offset_ptr = self.args.drop_seed_ptr + 8

    def address(self, tensor: torch.Tensor) -> int:
        """Return the address of a tensor, and hold a reference until the launch."""
        self.held.append(tensor)
        return int(tensor.data_ptr())

    def rows(self, name: str, tensor: torch.Tensor) -> None:
        """Set a tensor of [batch, head, row, dim], or [row, head, dim]."""
        if tensor.stride(-1) != 1:
            tensor = tensor.contiguous()
        to = getattr(self.args, name)
        to.data = self.address(tensor)
        if tensor.dim() == 4:
            to.stride_batch, to.stride_head, to.stride_row = tensor.stride()[:3]
        else:
            to.stride_row, to.stride_head = tensor.stride()[:2]

    def lse(self, tensor: torch.Tensor) -> None:
        """Set LSE, of [batch, head, row] or [head, row]."""
        self.args.lse.data = self.address(tensor)
        self.args.lse.stride_head = tensor.stride(-2)
        self.args.lse.stride_batch = 0 if self.group else tensor.stride(0)

    def launch(self) -> None:
        entry, device = _c.entry(self._entry), self.held[0].device
        size = entry.workspace_size(self.args)
        if size:
            # Freed at once: torch reuses it only behind this launch on the stream.
            workspace = torch.empty(size, dtype=torch.uint8, device=device)
            self.args.workspace, self.args.workspace_size = self.address(workspace), size
        entry.launch(self.args, _gpu.stream(device))


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: _Inputs) -> None:
    """Check devices, dtypes and shapes of tensors; the C functions check the numbers."""
    more = {n: t for n, t in problem._asdict().items() if isinstance(t, torch.Tensor)}
    given = {"query": q, "key": k, "value": v, **more}
    for name, tensor in given.items():
        _gpu.check(name, tensor)
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, expected {q.device}, as query")
    if q.dtype not in _DTYPES:
        raise ValueError(f"query is {q.dtype}, expected one of {[*map(str, _DTYPES)]}")
    kinds = {"alibi_slopes": torch.float32, "sink": torch.float32}
    kinds.update(cu_seqlens_q=torch.int32, cu_seqlens_k=torch.int32, rng=torch.int64)
    for name, tensor in given.items():
        if tensor.dtype != kinds.get(name, q.dtype):
            raise ValueError(f"{name} is {tensor.dtype}, expected {kinds.get(name, q.dtype)}")
    group = "cu_seqlens_q" in given
    for name in ("query", "key", "value"):
        if given[name].dim() != 4 - group:
            raise ValueError(f"{name} has {given[name].dim()} dimensions, expected {4 - group}")
    batch = given["cu_seqlens_q"].numel() - 1 if group else q.size(0)
    wanted = {
        "key": [(*q.shape[: 1 - group], *k.shape[1 - group : -1], q.size(-1))],
        "value": [(*k.shape[:-1], v.size(-1))],
        "cu_seqlens_k": [(batch + 1,)],
        "alibi_slopes": [(q.size(1),), (batch, q.size(1))],
        "sink": [(q.size(1),)],
        "rng": [(2,)],
    }
    for name, shapes in wanted.items():
        if name in given and tuple(given[name].shape) not in shapes:
            found = tuple(given[name].shape)
            raise ValueError(f"{name} is {found}, expected {' or '.join(map(str, shapes))}")
    if "bias" in given and "alibi_slopes" in given:
        raise ValueError("alibi_slopes and attn_mask: expected one of them")
    if group != ("cu_seqlens_k" in given):
        raise ValueError("cu_seqlens_q, cu_seqlens_k: expected both")
    if problem.dropout_p and "rng" not in given:
        raise ValueError("dropout_p without rng")


def _rows_before_heads(
    like: torch.Tensor, heads: int | torch.SymInt, dim: int | torch.SymInt
) -> torch.Tensor:
    """Return [batch, head, row, dim] whose rows hold their heads in memory, or [row, head, dim]."""
    if like.dim() == 3:
        return like.new_empty(like.size(0), heads, dim)
    return like.new_empty(like.size(0), like.size(2), heads, dim).transpose(1, 2)


def _results(
    q: torch.Tensor, v: torch.Tensor, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _rows_before_heads(q, q.size(1), v.size(-1))
    lse = q.new_empty(0, dtype=torch.float32)
    if return_lse and q.dim() == 3:
        lse = q.new_empty(q.size(1), q.size(0), dtype=torch.float32)
    elif return_lse:
        lse = q.new_empty(q.size(0), q.size(1), q.size(2), dtype=torch.float32)
    return out, lse


def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> Any:
    problem, return_lse = _Inputs(*rest[:-1]), rest[-1]
    _check(q, k, v, problem)
    call = _Call("mha_fwd", q, k, v, problem)
    with _gpu.current(call.held):
        out, lse = _results(q, v, return_lse)
        call.rows("o", out)
        if return_lse:
            call.lse(lse)
        try:
            call.launch()
        except _c.NoKernelError:
            if return_lse:
                raise
            # Libraries for training only have kernels that store LSE.
            call.lse(_results(q, v, True)[1])
            call.launch()
    return out, lse


def _forward_fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> Any:
    return _results(q, v, rest[-1])


def _gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: _Inputs,
    bias_grad: bool,
    sink_grad: bool,
) -> Any:
    """Allocate dq, dk, dv, d_bias and d_sink; empty tensors for gradients that are not needed."""
    bias = problem.bias if bias_grad and problem.bias is not None else q.new_empty(0)
    sink = problem.sink if sink_grad and problem.sink is not None else q.new_empty(0)
    return (
        _rows_before_heads(q, q.size(1), q.size(-1)),
        _rows_before_heads(k, k.size(1), k.size(-1)),
        _rows_before_heads(v, v.size(1), v.size(-1)),
        bias.new_empty(bias.shape),
        sink.new_empty(sink.shape, dtype=torch.float32),
    )


def _summed(gradient: torch.Tensor, heads: int) -> torch.Tensor:
    """Sum up the gradients of the heads of Q that share one head of K."""
    if gradient.size(1) == heads:
        return gradient
    parts = gradient.unflatten(1, (heads, -1)).sum(2)
    # In the memory layout of _rows_before_heads.
    return parts if parts.dim() == 3 else parts.transpose(1, 2).contiguous().transpose(1, 2)


def _backward(
    d_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> Any:
    out, lse, *numbers, bias_grad, sink_grad = rest
    problem = _Inputs(*numbers)
    _check(q, k, v, problem)
    call = _Call("mha_bwd", q, k, v, problem)
    with _gpu.current(call.held):
        dq, dk, dv, d_bias, d_sink = _gradients(q, k, v, problem, bias_grad, sink_grad)
        # One gradient for each head of Q: kernels do not sum up.
        dk_all = dk if k.size(1) == q.size(1) else _rows_before_heads(k, q.size(1), k.size(-1))
        dv_all = dv if k.size(1) == q.size(1) else _rows_before_heads(v, q.size(1), v.size(-1))
        given = {"o": out, "d_o": d_out, "dq": dq, "dk": dk_all, "dv": dv_all}
        for name, tensor in given.items():
            call.rows(name, tensor)
        call.lse(lse)
        if bias_grad:
            whole = q.new_empty(q.size(0), q.size(1), q.size(2), k.size(2))
            call.rows("d_bias", whole)
        if sink_grad:
            call.args.d_sink = call.address(d_sink.zero_())
        call.launch()
        dk, dv = _summed(dk_all, k.size(1)), _summed(dv_all, k.size(1))
        if bias_grad and problem.bias is not None:
            d_bias = whole.sum_to_size(problem.bias.shape)
    return dq, dk, dv, d_bias, d_sink


def _backward_fake(
    d_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> Any:
    _out, _lse, *given, bias_grad, sink_grad = rest
    return _gradients(q, k, v, _Inputs(*given), bias_grad, sink_grad)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, *rest = inputs
    out, lse = output
    # Kernels do not compute a gradient of LSE.
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse, *rest[:_TENSORS])
    ctx.numbers = rest[_TENSORS:-1]


def _backward_of_forward(ctx: Any, d_out: torch.Tensor, *_: Any) -> Any:
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    if lse.numel() == 0:
        raise RuntimeError(f"{_SPACE}: mha_fwd was called without return_lse, which backward needs")
    wanted = _Inputs(*ctx.needs_input_grad[3:-1])
    wants = [wanted.bias, wanted.sink]
    found = OPS.mha_bwd(d_out, q, k, v, out, lse, *tensors, *ctx.numbers, *wants)
    dq, dk, dv, d_bias, d_sink = found
    of_problem = {"bias": d_bias if wants[0] else None, "sink": d_sink if wants[1] else None}
    return dq, dk, dv, *map(of_problem.get, _Inputs._fields), None


def _no_second_derivative(*_: Any) -> Any:
    raise RuntimeError(f"{_SPACE}: there are no second derivatives of attention")


_THREE = "Tensor q, Tensor k, Tensor v"
define(f"{_SPACE}::mha_fwd", f"({_THREE}, {_PROBLEM}, bool return_lse) -> (Tensor, Tensor)")
define(
    f"{_SPACE}::mha_bwd",
    f"(Tensor d_out, {_THREE}, Tensor out, Tensor lse, {_PROBLEM}, bool bias_grad, "
    "bool sink_grad) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
impl(f"{_SPACE}::mha_fwd", "default", _forward)
impl(f"{_SPACE}::mha_bwd", "default", _backward)
register_fake(f"{_SPACE}::mha_fwd", _forward_fake)
register_fake(f"{_SPACE}::mha_bwd", _backward_fake)
register_autograd(f"{_SPACE}::mha_fwd", _backward_of_forward, setup_context=_keep)
register_autograd(f"{_SPACE}::mha_bwd", _no_second_derivative)
OPS: Any = getattr(torch.ops, _SPACE)
