"""Predicts from plan.json which kernels a library launches for a call.

A dispatch is an if-chain: the first arch whose name is a prefix of the device's, the data type,
the first head-dim bucket that is large enough, and the first kernel instance that fits. The
kernels of a plan have that order. The conditions are those of CK as in AITER's 0.1.7 wheels,
derived from the meaning of the fields. Assembly (v3) kernels serve a problem if the caller allows
it, a variant of the manifest requests it, and AITER 0.1.7 has a code object for it. File names of
code objects follow AITER's convention. This file does not read generated C++.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConsumerCall:
    """One attention problem, with the parameters of the public entry points."""

    direction: str  # "fwd" or "bwd"
    dtype: str  # "fp16", "bf16" or "fp32"
    hdim_q: int  # head dimension of Q and K
    hdim_v: int  # head dimension of V
    mode: str = "batch"  # "batch" (sequences of equal length) or "group" (lengths from an array)
    mask: str = "no"  # "no", "top_left", "bottom_right" or "window"
    bias: str = "no"  # "no", "bias" (elementwise) or "alibi"
    lse: bool = True  # forward stores the log-sum-exp
    dbias: bool = False  # backward computes the gradient of the bias
    dropout: float = 0.0  # probability, 0 for none
    store_randval: bool = False  # stores dropout's random values
    deterministic: bool = False  # backward gives the same result on every run
    batch: int = 2  # number of sequences
    nhead_q: int = 4  # heads of Q
    nhead_k: int = 2  # heads of K and V
    seqlen_q: int = 256  # length of each sequence of Q
    seqlen_k: int = 256  # length of each sequence of K and V
    use_ext_asm: bool = False  # allows assembly (v3) kernels
    v3_api_check: bool = False  # only query whether an assembly kernel would serve the problem
    bf16_cvt: int = 1  # how assembly kernels round: 0 to nearest even, 1 to nearest away, 2 to zero
    atomic_fp32: bool = True  # backward assembly kernels sum dQ up as float
    soft_cap: float = 0.0  # forward limit of logits, 0 for none
    min_seqlen_q: int = 0  # forward skips shorter sequences, 0 for none

    @property
    def seqlen_q_argument(self) -> int:
        """The entry point's seqlen_q: in group mode AITER passes the total."""
        return self.seqlen_q * (self.batch if self.mode == "group" else 1)

    @property
    def seqlen_k_argument(self) -> int:
        """The entry point's seqlen_k: in group mode AITER passes the total."""
        return self.seqlen_k * (self.batch if self.mode == "group" else 1)


Plan = Mapping[str, Any]
Kernel = Mapping[str, Any]

#: Rounding from float to bf16, by the number that a caller passes.
_ROUNDING = {0: "rtne", 1: "rtna", 2: "rtz"}
#: Models of gfx942 by cu_count; AITER has no forward code objects for other counts.
_SIZES = {304: "MI300", 80: "MI308", 64: "MI308"}
#: Rows of Q in a block of backward assembly kernels, and of dot_do_o and convert_dq.
_ROWS = 64


def _requests_assembly(plan: Plan, problem: ConsumerCall) -> bool:
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


def _assembly_launches(
    plan: Plan, problem: ConsumerCall, arch: str, cu_count: int
) -> tuple[Kernel, ...]:
    """Return the launched code objects and kernel instances for a requested problem.

    Empty if AITER or the library has no code object for the problem.
    """
    key = (_forward_code_object if problem.direction == "fwd" else _backward_code_object)(
        problem, arch, cu_count
    )
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


def _forward_code_object(problem: ConsumerCall, arch: str, cu_count: int) -> str:
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


def _backward_code_object(problem: ConsumerCall, arch: str, _cu_count: int) -> str:
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


def _helper(plan: Plan, role: str, problem: ConsumerCall, ragged: bool) -> Kernel:
    """Return the kernel that runs before or after a backward assembly kernel."""
    hdim = "hdim_v" if role == "asm_dot_do_o" else "hdim_q"
    required = {"dtype": problem.dtype, "mode": problem.mode, "spad": ragged, hdim: problem.hdim_q}
    return _only(plan["kernels"], role, required)


#: No kernel of the library serves the problem.
NO_KERNEL = -1.0
#: The library has no code for the device's arch.
NO_ARCH = -2.0
#: With v3_api_check: an assembly kernel would serve the problem.
ASSEMBLY = 1.0


@dataclass(frozen=True)
class Prediction:
    """The result of a call."""

    status: float  # the entry point's result if it launches nothing, otherwise 0
    # launched kernel instances and code objects of the plan, in order
    launches: tuple[Kernel, ...] = ()


def predict(plan: Mapping[str, Any], problem: ConsumerCall, arch: str, cu_count: int) -> Prediction:
    """Return the status and launches of the plan's library for a problem."""
    if arch not in plan["archs"]:
        return Prediction(NO_ARCH)
    if _requests_assembly(plan, problem):
        launched = _assembly_launches(plan, problem, arch, cu_count)
        if launched:
            return Prediction(ASSEMBLY) if problem.v3_api_check else Prediction(0.0, launched)
    if problem.v3_api_check:
        return Prediction(NO_KERNEL)
    main = "fwd" if problem.direction == "fwd" else "dq_dk_dv"
    kernels = [k for k in plan["kernels"] if k["role"] == main]
    kernels = [k for k in _of_arch(kernels, arch) if k["fields"]["dtype"] == problem.dtype]
    bucket = _bucket(kernels, problem)
    if problem.direction == "fwd":
        largest = max((_sizes(kernel["fields"])[0] for kernel in bucket), default=0)
        fitting = (k for k in bucket if _fits_forward(k["fields"], problem, largest))
    else:
        bucket.sort(key=lambda k: _max_rows(k["fields"]) or 1_000_000)
        fitting = (k for k in bucket if _fits_backward(k["fields"], problem))
    kernel = next(fitting, None)
    if kernel is None:
        return Prediction(NO_KERNEL)
    if problem.direction == "fwd":
        return Prediction(0.0, (kernel,))
    return Prediction(0.0, _stages(plan["kernels"], kernel, problem))


def _of_arch(kernels: Sequence[Kernel], arch: str) -> list[Kernel]:
    """Return the kernels of the only arch branch that the device takes."""
    tags = dict.fromkeys(k["fields"].get("arch") for k in kernels)
    tag = next((tag for tag in tags if arch.startswith(tag)), None)
    return [k for k in kernels if k["fields"].get("arch") == tag]


def _max_rows(fields: Mapping[str, Any]) -> int:
    """Return the largest seqlen_q that a kernel serves, or 0 if there is no limit."""
    _, _, number = str(fields["tile"]).partition("_maxq")
    return int(number or 0)


def _hdims(kernel: Kernel) -> tuple[int, int]:
    return kernel["fields"]["hdim_q"], kernel["fields"]["hdim_v"]


def _bucket(kernels: Sequence[Kernel], problem: ConsumerCall) -> list[Kernel]:
    """Return the kernels of the first head-dim bucket that is large enough."""
    for bucket in dict.fromkeys(_hdims(kernel) for kernel in kernels):
        if problem.hdim_q <= bucket[0] and problem.hdim_v <= bucket[1]:
            return [kernel for kernel in kernels if _hdims(kernel) == bucket]
    return []


def _sizes(fields: Mapping[str, Any]) -> list[int]:
    """Return the tile sizes; the first two are along seqlen_q and seqlen_k."""
    return [int(size) for size in fields["tile"].split("_")[0].removeprefix("b").split("x")]


def _same_problem(fields: Mapping[str, Any], problem: ConsumerCall) -> bool:
    return bool(
        fields["mode"] == problem.mode
        and fields["mask"] == (problem.mask != "no")
        and fields["bias"] == problem.bias
        and fields["dropout"] == (problem.dropout > 0)
    )


#: Bytes that a forward kernel with the asynchronous pipeline loads at once.
_VECTOR_BYTES = 16
_DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


def _fits_forward(fields: Mapping[str, Any], problem: ConsumerCall, largest: int) -> bool:
    """Return whether a forward kernel serves a problem; `largest`: the bucket's largest Q tile."""
    bm0, bn0, *_, k0_max = _sizes(fields)
    if not _same_problem(fields, problem) or fields["lse"] != problem.lse:
        return False
    if fields["logits"] != (problem.soft_cap > 0) or fields["skip"] != (problem.min_seqlen_q > 0):
        return False
    if fields["squant"] or fields["vlayout"] != "row":
        return False
    if bm0 != largest and problem.seqlen_q_argument > bm0:
        return False
    whole_k = problem.seqlen_k_argument != 0 and problem.seqlen_k_argument % bn0 == 0
    if fields["pipeline"] == "qr_async":
        # CK has two kernels here: one for whole tiles of K, one for other lengths.
        vector = _VECTOR_BYTES // _DTYPE_BYTES[problem.dtype]
        return (problem.mode == "group" or fields["skpad"] != whole_k) and not (
            problem.hdim_q % vector or problem.hdim_v % vector
        )
    if fields["pipeline"] != "qr_async_trload" and problem.mode == "batch":
        if not fields["spad"] and problem.seqlen_q_argument % bm0:
            return False
        if not fields["skpad"] and not whole_k:
            return False
    # K0 of 96 is computed as 128.
    step = 128 if k0_max == 96 else k0_max
    return (fields["dpad"] or problem.hdim_q % step == 0) and (
        fields["dvpad"] or problem.hdim_v % step == 0
    )


def _fits_backward(fields: Mapping[str, Any], problem: ConsumerCall) -> bool:
    """Return whether a dq_dk_dv kernel serves a problem."""
    sizes = _sizes(fields)
    return (
        _same_problem(fields, problem)
        and fields["dbias"] == problem.dbias
        and fields["deterministic"] == problem.deterministic
        and (not fields["dropout"] or fields["randval"] == problem.store_randval)
        # Padding of 8 or 1 serves multiples of 8 or 1; without padding, multiples of the bucket.
        and problem.hdim_q % (fields["dpad"] or fields["hdim_q"]) == 0
        and problem.hdim_v % (fields["dvpad"] or fields["hdim_v"]) == 0
        and not 0 < _max_rows(fields) < problem.seqlen_q_argument
        and not (
            fields["trload"]
            and not _max_rows(fields)
            and sizes[1] == 128
            and problem.seqlen_k_argument > 256
        )
    )


def _stages(kernels: Sequence[Kernel], main: Kernel, problem: ConsumerCall) -> tuple[Kernel, ...]:
    """Return the two or three kernels of a backward pass, including its dq_dk_dv."""
    fields = main["fields"]
    short = 0 < _max_rows(fields) < _ROWS
    whole = problem.mode == "batch" and problem.seqlen_q % _ROWS == 0 and not short
    common = {key: fields[key] for key in ("arch", "dtype", "hdim_q", "hdim_v", "mode")}
    common["spad"] = not whole
    stages = [_only(kernels, "dot_do_o", {**common, "dvpad": fields["dvpad"] > 0}), main]
    # A kernel for short sequences writes dQ without convert_dq.
    if not _max_rows(fields):
        tile_k = _sizes(fields)[1] if problem.deterministic else 0
        wanted = {
            **common,
            "dpad": fields["dpad"] > 0,
            "deterministic": problem.deterministic,
            "tile": f"b{_ROWS}x{tile_k}",
        }
        stages.append(_only(kernels, "convert_dq", wanted))
    return tuple(stages)


def _only(kernels: Sequence[Kernel], role: str, wanted: Mapping[str, Any]) -> Kernel:
    """Return the only kernel of a role with the wanted fields."""
    (kernel_,) = (
        kernel
        for kernel in kernels
        if kernel["role"] == role and wanted.items() <= kernel["fields"].items()
    )
    return kernel_
