"""The arguments of an entry point for a problem, by AITER's names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qola_base.json_types import Scalar
from qola_lab.problems import AttentionProblem
from qola_lab.problems.problem import BIAS_TYPES, MASK_TYPES, ROPE_TYPES
from qola_lab.verify.tensors import Buffer, buffers, page_sizes

#: Parameters that became members with other names in later trees.
_NEWER = {
    "q_dtype_str": "data_type",
    "use_ext_asm": "use_asm_v3",
    "deterministic": "is_deterministic",
    "is_v3_atomic_fp32": "v3_atomic_fp32",
}
#: Dimensions of a tensor's rows, heads, sequences and splits, if there is an argument for its
#: stride: LSE has none for its rows.
_DIMENSIONS: Mapping[str, Mapping[str, int]] = {
    **{
        name: {"": -3, "nhead_": -2, "batch_": 0}
        for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv", "knew", "vnew")
    },
    "lse": {"nhead_": -2, "batch_": 0},
    "bias": {"": 1, "nhead_": 0},
    "dbias": {"": -2, "nhead_": -3, "batch_": 0},
    "lse_acc": {"nhead_": -2, "batch_": 1, "split_": 0},
    "o_acc": {"": -2, "nhead_": -3, "batch_": 1, "split_": 0},
    "dq_acc": {"": 3, "nhead_": 2, "batch_": 1, "split_": 0},
}


def sizes(problem: AttentionProblem) -> dict[str, int]:
    """Return the sizes of a problem; of group mode, seqlen_q and seqlen_k are sums."""
    total = sum if problem.is_group_mode else max
    return {
        "batch": problem.batch,
        "nhead_q": problem.nhead_q,
        "nhead_k": problem.nhead_k,
        "hdim_q": problem.hdim_q,
        "hdim_v": problem.hdim_v,
        "seqlen_q": total(problem.seqlen_q),
        "seqlen_k": total(problem.seqlen_k),
        "max_seqlen_q": max(problem.seqlen_q),
        "max_seqlen_k": max(problem.seqlen_k),
        "num_splits": problem.num_splits,
    }


def dispatch_arguments(problem: AttentionProblem) -> dict[str, int | None]:
    """Return the members of `a`, the arguments, that conditions of a dispatch read."""
    pointers = ("cu_seqlen_q_ptr", "cu_seqlen_k_ptr", "seqlen_k_ptr")
    paged = problem.layout.page_block_size or None
    windows = {name: getattr(problem, name) for name in ("window_size_left", "window_size_right")}
    return {**sizes(problem), **windows, "block_table_ptr": paged, **dict.fromkeys(pointers)}


def entry_values(
    problem: AttentionProblem, arch: str, parameters: Collection[str]
) -> dict[str, Scalar]:
    """Return the values of a problem, but for addresses.

    Parameters are the entry point's behind its arguments, as in plan.json.
    """
    values: dict[str, Scalar] = {**sizes(problem), **page_sizes(problem)}
    values |= _strides(problem, buffers(problem, arch))
    if problem.direction != "fwd_splitkv":
        del values["num_splits"]
    if problem.direction != "bwd":
        del values["max_seqlen_k"]
    if problem.seqlen_knew:
        del values["max_seqlen_q"], values["seqlen_k"]
        return values | {
            "q_dtype_str": problem.dtype,
            "rope_type": [*ROPE_TYPES].index(problem.rope_type),
            "seqlen_q": problem.seqlen_q[0],
            "seqlen_knew": problem.seqlen_knew,
            "rotary_dim": problem.rotary_dim,
            "has_mask": problem.mask_type != "no",
        }
    values |= {
        "is_group_mode": problem.is_group_mode,
        "mask_type": [*MASK_TYPES].index(problem.mask_type),
        "bias_type": [*BIAS_TYPES].index(problem.bias_type),
        "window_size_left": problem.window_size_left,
        "window_size_right": problem.window_size_right,
    }
    if problem.has_sink:
        values["has_sink"] = True
    renamed: dict[str, Scalar] = {"q_dtype_str": problem.dtype}
    # Split-KV and paged prefill have neither dropout nor assembly kernels.
    if problem.direction not in ("fwd_splitkv", "pagedkv_prefill"):
        dropped = problem.dropout
        renamed["use_ext_asm"] = problem.use_asm
        values["p_drop"] = dropped.probability if dropped else 0.0
        values["drop_seed"] = dropped.seed if dropped else 0
        values["drop_offset"] = dropped.offset if dropped else 0
        if problem.direction == "bwd":
            values["p_undrop"] = dropped.undropped if dropped else 1.0
        else:
            values["s_randval"] = False
    if problem.use_asm or problem.direction == "bwd":
        values["how_v3_bf16_cvt"] = problem.how_v3_bf16_cvt
    if problem.direction == "bwd":
        renamed["deterministic"] = problem.deterministic
        renamed["is_v3_atomic_fp32"] = problem.is_v3_atomic_fp32
        values |= {"scale": problem.softmax_scale, "has_dbias": problem.has_dbias}
        values["is_store_randval"] = False
    else:
        values["scale_s"] = problem.softmax_scale
        if not takes_descales(parameters):
            values |= {"scale_p": 1.0, "scale_o": 1.0}
        values |= {"logits_soft_cap": problem.logits_soft_cap, "has_lse": problem.return_lse}
    if problem.direction == "fwd":
        values["min_seqlen_q"] = problem.min_seqlen_q
    return values | {n if n in parameters else _NEWER[n]: v for n, v in renamed.items()}


def takes_descales(parameters: Collection[str]) -> bool:
    """Whether an entry point takes factors of its inputs, as trees of 2026 do.

    Those of earlier trees take factors of static quantization, for P and O.
    """
    return "q_dtype_str" not in parameters


def _strides(problem: AttentionProblem, of: Mapping[str, Buffer]) -> dict[str, int]:
    """Return stride_q, nhead_stride_q, batch_stride_q and those of other tensors."""
    found: dict[str, int] = {}
    for name, buffer in of.items():
        # A backward has other names for the strides of LSE, which are those of D, too.
        word = "lsed" if (name, problem.direction) == ("lse", "bwd") else name
        strides = {
            f"{kind}stride_{word}": buffer.strides[at]
            for kind, at in _DIMENSIONS.get(name, {}).items()
        }
        batch = f"batch_stride_{word}"
        if name in ("k", "v") and problem.layout.page_block_size:
            strides[batch] = problem.layout.page_block_size * buffer.strides[0]
        elif name == "bias":
            # The same for each sequence, and, with a single head, for each head.
            strides[batch] = 0
            if buffer.shape[0] == 1:
                strides["nhead_stride_bias"] = 0
        elif name == "alibi_slopes":
            strides["stride_bias"] = buffer.shape[1] if problem.batched_alibi_slopes else 0
        elif name == "dq_acc" and not problem.is_v3_atomic_fp32:
            pass  # Kernels that accumulate in 16 bits find each sequence by it.
        elif batch in strides and problem.is_group_mode and not problem.seqlen_knew:
            strides[batch] = 0
        found |= strides
    return found


def address_names(name: str) -> str:
    """Return the argument that holds a buffer's address."""
    return "bias_ptr" if name == "alibi_slopes" else f"{name}_ptr"
