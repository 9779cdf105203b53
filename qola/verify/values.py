"""The arguments of an entry point for a problem, by AITER's names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qola.attention import AttentionProblem
from qola.attention.ck import BIAS_TYPES, MASK_TYPES, arguments_of
from qola.verify import append, pages
from qola.verify.buffer import Buffer
from qola.verify.memory import buffers, stride_arguments

#: Members with the sizes of a problem.
_SIZES = (
    *("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v"),
    *("seqlen_q", "seqlen_k", "max_seqlen_q", "max_seqlen_k", "num_splits"),
)
#: Of LSE: a forward's arguments and a backward's have a word each, and no stride of its rows.
_LSE = {"bwd": "lsed"}
#: Parameters that became members with other names in later trees.
_NEWER = {
    "q_dtype_str": "data_type",
    "use_ext_asm": "use_asm_v3",
    "deterministic": "is_deterministic",
    "is_v3_atomic_fp32": "v3_atomic_fp32",
}


def entry_values(
    problem: AttentionProblem, arch: str, parameters: Collection[str]
) -> dict[str, Any]:
    """Return the values of a problem, but for addresses.

    Args:
        parameters: names of the entry point's parameters behind its arguments, see plan.json.
    """
    if problem.seqlen_knew:
        return append.entry_values(problem, arch)
    backward = problem.direction == "bwd"
    split = problem.direction == "fwd_splitkv"
    # Neither has dropout, nor assembly kernels.
    plain = split or problem.direction == "pagedkv_prefill"
    sizes = arguments_of(problem)
    left_out = set() if backward else {"max_seqlen_k"}
    left_out |= set() if split else {"num_splits"}
    values = {name: sizes[name] for name in _SIZES if name not in left_out}
    words: dict[str, Any] = {"q_dtype_str": problem.dtype}
    values |= {
        "is_group_mode": problem.is_group_mode,
        "mask_type": [*MASK_TYPES].index(problem.mask_type),
        "bias_type": [*BIAS_TYPES].index(problem.bias_type),
        "window_size_left": problem.window_size_left,
        "window_size_right": problem.window_size_right,
        **({"has_sink": True} if problem.has_sink else {}),
    }
    dropped = problem.dropout
    if not plain:
        words["use_ext_asm"] = problem.use_asm
        values["p_drop"] = dropped.probability if dropped else 0.0
        values["drop_seed"] = dropped.seed if dropped else 0
        values["drop_offset"] = dropped.offset if dropped else 0
    if backward:
        words |= {
            "deterministic": problem.deterministic,
            "is_v3_atomic_fp32": problem.is_v3_atomic_fp32,
        }
        values |= {
            "scale": problem.softmax_scale,
            "p_undrop": dropped.undropped if dropped else 1.0,
            "has_dbias": problem.has_dbias,
            "is_store_randval": False,
            "how_v3_bf16_cvt": problem.how_v3_bf16_cvt,
        }
    else:
        values |= {"scale_s": problem.softmax_scale, "scale_p": 1.0, "scale_o": 1.0}
        values |= {"logits_soft_cap": problem.logits_soft_cap, "has_lse": problem.return_lse}
        if not plain:
            values["s_randval"] = False
        if problem.direction == "fwd":
            values["min_seqlen_q"] = problem.min_seqlen_q
        if problem.use_asm:
            values["how_v3_bf16_cvt"] = problem.how_v3_bf16_cvt
        values |= pages.sizes(problem)
    values |= {name if name in parameters else _NEWER[name]: v for name, v in words.items()}
    return values | _strides(problem, buffers(problem, arch))


def _strides(problem: AttentionProblem, of: dict[str, Buffer]) -> dict[str, int]:
    found = stride_arguments(problem, of)
    word = _LSE.get(problem.direction, "lse")
    for name in ("lse", "lsed", "lse_acc"):
        found.pop(f"stride_{name}", None)
    for name in ("lse", "lsed"):
        if name != word:
            found.pop(f"nhead_stride_{name}", None)
            found.pop(f"batch_stride_{name}", None)
    return found


def address_names(name: str) -> str:
    """Return the argument that holds a buffer's address."""
    return "bias_ptr" if name == "alibi_slopes" else f"{name}_ptr"
