"""Predicts from plan.json which assembly (v3) kernels a library launches for a problem.

They serve a problem if the caller allows it, a variant of the manifest requests it, and AITER
0.1.7 has a code object for it. File names of code objects follow AITER's convention.
This file does not read generated C++.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qola_lab.tests.verify.problem import ConsumerCall

Plan = Mapping[str, Any]
Launched = Mapping[str, Any]

#: Rounding from float to bf16, by the number that a caller passes.
_ROUNDING = {0: "rtne", 1: "rtna", 2: "rtz"}
#: Models of gfx942 by cu_count; AITER has no forward code objects for other counts.
_SIZES = {304: "MI300", 80: "MI308", 64: "MI308"}
#: Rows of Q in a block of the backward kernels.
_ROWS = 64


def is_requested(plan: Plan, problem: ConsumerCall) -> bool:
    """Return whether the caller allows assembly kernels, and a variant of the manifest has them."""
    if not problem.use_ext_asm or problem.soft_cap or problem.min_seqlen_q or problem.dropout:
        return False
    if problem.bias != "no" or problem.dbias or problem.deterministic:
        return False
    required = {"mode": problem.mode, "mask": problem.mask != "no", "bias": "no", "dropout": False}
    if problem.direction == "fwd":
        required["lse"] = problem.lse
    return any(
        (variant["dtype"] is None or problem.dtype in variant["dtype"])
        and (variant["hdim"] is None or [problem.hdim_q, problem.hdim_v] in variant["hdim"])
        and all(value in variant[name] for name, value in required.items())
        for variant in plan["manifest"][f"mha_{problem.direction}_variants"]
    )


def launches(plan: Plan, problem: ConsumerCall, arch: str, cu_count: int) -> tuple[Launched, ...]:
    """Return the launched code objects and kernel instances for a requested problem.

    Empty if AITER or the library has no code object for the problem.
    """
    key = (_forward if problem.direction == "fwd" else _backward)(problem, arch, cu_count)
    module = next(m for m in plan["modules"] if m["name"] == f"libmha_{problem.direction}")
    found = [planned for planned in module["code_objects"] if planned["key"] == key]
    if not found or problem.direction == "fwd":
        return tuple(found)
    ragged = problem.seqlen_q % _ROWS != 0
    stages = [_helper(plan, "asm_dot_do_o", problem, ragged), *found]
    if problem.atomic_fp32:
        # dQ was summed up as float.
        stages.append(_helper(plan, "asm_convert_dq", problem, ragged))
    return tuple(stages)


def _forward(problem: ConsumerCall, arch: str, cu_count: int) -> str:
    """Return the key of the code object for a forward problem, or "" if AITER has none."""
    hdims = {(128, 128): "hd128"}
    if arch == "gfx950":
        hdims[192, 128] = "hd192_hd128"
    hdim = hdims.get((problem.hdim_q, problem.hdim_v))
    causal = problem.mask == "bottom_right" or (
        # For equal lengths, top-left and bottom-right masks are equal.
        problem.mask == "top_left"
        and problem.mode == "batch"
        and problem.seqlen_q == problem.seqlen_k
    )
    if problem.dtype != "bf16" or not hdim or not (problem.mask == "no" or causal):
        return ""
    parts = ["fwd", hdim, "bf16"]
    folder = f"hsa/{arch}/fmha_v3_fwd"
    if causal:
        parts.append("causal")
    if arch == "gfx942":
        folder += "/" + _SIZES.get(cu_count, "none")
        parts.append(_ROUNDING[problem.bf16_cvt])
    if problem.mode == "group":
        parts.append("group")
    return f"{folder}/{'_'.join(parts)}.co"


def _backward(problem: ConsumerCall, arch: str, _cu_count: int) -> str:
    """Return the key for a backward problem of head dimension 64 without mask, or ""."""
    if (problem.hdim_q, problem.hdim_v) != (64, 64) or problem.mask != "no":
        return ""
    if problem.nhead_q % problem.nhead_k or problem.dtype not in ("bf16", "fp16"):
        return ""
    whole = problem.seqlen_q == problem.seqlen_k and problem.seqlen_k % _ROWS == 0
    if not problem.atomic_fp32 and (not whole or problem.mode == "group"):
        return ""
    parts = ["bwd", "hd64", problem.dtype, "a32" if problem.atomic_fp32 else "a16"]
    if problem.dtype == "bf16":
        parts.append(_ROUNDING[problem.bf16_cvt])
    if problem.atomic_fp32:
        parts.append("pssk")
    if problem.mode == "group":
        parts.append("group")
    return f"hsa/{arch}/fmha_v3_bwd/{'_'.join(parts)}.co"


def _helper(plan: Plan, role: str, problem: ConsumerCall, ragged: bool) -> Launched:
    """Return the kernel that runs before or after a backward assembly kernel."""
    hdim = "hdim_v" if role == "asm_dot_do_o" else "hdim_q"
    required = {"dtype": problem.dtype, "mode": problem.mode, "spad": ragged, hdim: problem.hdim_q}
    found: Launched
    (found,) = (
        kernel
        for kernel in plan["kernels"]
        if kernel["role"] == role and required.items() <= kernel["fields"].items()
    )
    return found
