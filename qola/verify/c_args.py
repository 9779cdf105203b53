"""A problem in the words of qola_c.h, as far as the C functions ask for it without launching it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from qola.attention import AttentionProblem
from qola.verify.memory import buffers, tables
from qola.verify.values import entry_values

MAX_STAGES = 8
"""Of an answer: QOLA_MAX_STAGES."""

#: Constants of the header's enumerations, by words of problems.
_DTYPES = ("", "fp16", "bf16", "fp32", "fp8", "bf8", "fp8fp16", "fp8bf16", "fp8fp32")
_WINDOWS = {"no": 0, "bottom_right": 3, "top_left": 4}
_CK_ALONE = 1
#: What is only asked whether it is null.
_SOMEWHERE = 0x1000
#: Fields with other names than AITER's arguments have.
_NAMES = {
    "is_group_mode": "group",
    "is_deterministic": "deterministic",
    "scale_s": "scale",
    "p_drop": "dropout",
    "seqlen_knew": "seqlen_new",
    "rope_type": "rope",
    "batch_stride_block_table": "block_table_stride",
    "page_block_size": "page_size",
    "num_total_pages": "num_pages",
}
_TENSORS = {
    "do": "d_o",
    "dbias": "d_bias",
    "knew": "k_new",
    "vnew": "v_new",
    "alibi_slopes": "bias",
}
_TABLES = {"seqlen_k": "seqlens_k"}
_I32, _I64, _PTR = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_U32, _U64, _FLOAT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_float


def _members(*groups: tuple[Any, str]) -> list[tuple[str, Any]]:
    return [(name, kind) for kind, names in groups for name in names.split()]


class Tensor(ctypes.Structure):
    """qola_tensor."""

    _fields_ = _members((_PTR, "data"), (_I64, "stride_batch stride_head stride_row"))


class Args(ctypes.Structure):
    """qola_mha_args."""

    _fields_: ClassVar[Any] = _members(
        (_U32, "struct_size"),
        (_I32, "dtype mask bias_type group kernels rounding deterministic"),
        (_I64, "batch nhead_q nhead_k seqlen_q seqlen_k max_seqlen_q max_seqlen_k hdim_q hdim_v"),
        (_I64, "window_left window_right sink_size min_seqlen_q"),
        (_FLOAT, "scale logits_soft_cap dropout scale_p scale_o"),
        (_I32, "quantization"),
        (Tensor, "q k v o lse bias randval d_o dq dk dv d_bias"),
        (_U64, "drop_seed drop_offset"),
        (_PTR, "drop_seed_ptr drop_offset_ptr seqstart_q seqstart_k seqlens_q seqlens_k"),
        (_PTR, "cu_seqlens_q cu_seqlens_k sink d_sink workspace"),
        (_U64, "workspace_size"),
        (_I64, "num_splits"),
        (_PTR, "block_table"),
        (_I64, "block_table_stride page_size"),
        (_I32, "gappy atomic16"),
        (_PTR, "cache_batch_idx"),
        (_I64, "num_pages"),
        (_PTR, "kv_indptr kv_page_indices kv_last_page_lens"),
        (_I32, "kv_layout kv_lookup"),
        (Tensor, "q_descale k_descale v_descale"),
        (_PTR, "block_scale_seqstart_q block_scale_seqstart_k"),
        (_I64, "block_scale_size_q block_scale_size_k"),
        (Tensor, "k_new v_new"),
        (_I64, "seqlen_new"),
        (_PTR, "rotary_cos rotary_sin"),
        (_I32, "rope rotary_dim"),
    )


class Stage(ctypes.Structure):
    """qola_stage."""

    _fields_ = _members((ctypes.c_char_p, "kernel symbol"), (_I32, "assembly reserved"))


class Answer(ctypes.Structure):
    """qola_found."""

    _fields_: ClassVar[Any] = [
        *_members((_U32, "struct_size stage_count"), (_U64, "workspace_size")),
        ("stages", Stage * MAX_STAGES),
    ]


def arguments(problem: AttentionProblem, arch: str) -> Args:
    """Return what a C caller hands an entry point for a problem, without memory."""
    values = entry_values(problem, arch, ())
    args = Args(
        struct_size=ctypes.sizeof(Args),
        dtype=_DTYPES.index(problem.dtype),
        mask=_WINDOWS[problem.mask_type],
        kernels=0 if problem.use_asm else _CK_ALONE,
        # Of assembly kernels: functions that never ask them refuse the word.
        rounding=problem.how_v3_bf16_cvt + 1 if problem.use_asm else 0,
        atomic16=int(problem.direction == "bwd" and not problem.is_v3_atomic_fp32),
    )
    if problem.mask_type != "no":
        args.window_left, args.window_right = problem.window_size_left, problem.window_size_right
    for name, value in values.items():
        field = _NAMES.get(name, name)
        if isinstance(getattr(args, field, None), int | float):
            setattr(args, field, value)
    for name, tensor in _tensors(problem, arch, values):
        setattr(args, name, tensor)
    for name in tables(problem):
        plain = name.removesuffix("_ptr")
        setattr(args, _TABLES.get(plain, plain), _SOMEWHERE)
    return args


def _tensors(
    problem: AttentionProblem, arch: str, values: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    for name in buffers(problem, arch):
        field = _TENSORS.get(name, name)
        if name == "q" and problem.seqlen_knew and problem.rope_type == "no":
            continue  # Nothing is done to it.
        if name.startswith("rotary"):
            yield name, _SOMEWHERE
        elif name == "alibi_slopes":
            yield field, Tensor(data=_SOMEWHERE, stride_batch=values["stride_bias"])
        elif field in dict(Args._fields_):
            # A backward's arguments have a word of their own for the strides of LSE.
            ending = "lsed" if (name, problem.direction) == ("lse", "bwd") else name
            strides = (
                values.get(f"{of_which}stride_{ending}", 0) for of_which in ("batch_", "nhead_", "")
            )
            yield field, Tensor(_SOMEWHERE, *strides)
