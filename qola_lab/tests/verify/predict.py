"""Predicts from plan.json which kernels a library launches for a problem.

A dispatch is an if-chain: the first arch whose name is a prefix of the device's, the data type,
the first head-dim bucket that is large enough, and the first kernel instance that fits. The
kernels of a plan have that order. The conditions are those of CK as in AITER's 0.1.7 wheels,
derived from the meaning of the fields; this file does not read generated C++.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qola_lab.tests.verify import assembly
from qola_lab.tests.verify.problem import ConsumerCall

#: No kernel of the library serves the problem.
NO_KERNEL = -1.0
#: The library has no code for the device's arch.
NO_ARCH = -2.0
#: With v3_api_check: an assembly kernel would serve the problem.
ASSEMBLY = 1.0

Kernel = Mapping[str, Any]


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
    if assembly.is_requested(plan, problem):
        launched = assembly.launches(plan, problem, arch, cu_count)
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


#: Rows of Q in a block of dot_do_o and convert_dq.
_ROWS = 64


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
