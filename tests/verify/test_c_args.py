"""Problems in the words of the C functions: structures, and what stands in them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from qola.reference.dropout import Dropout
from qola.reference.masks import BOTTOM_RIGHT, Mask
from qola.verify import c_args, find
from qola.verify.problem import Problem
from qola.verify.tensors import DTYPES
from tests.library import header

HEADER = Path(__file__).parents[2] / "cc/api/qola_c.h"
BACKWARD = Problem("bwd", "bf16", 24, 16, False, (5, 5), (7, 7), 4, 2, 0.2, lse=True)
APPEND = Problem("fwd_appendkv", "fp16", 64, 64, False, (3,), (9,), 2, 1, 0.125, new=4, page=128)


def test_the_structures_are_those_of_the_header() -> None:
    """Prevents: fields that a library reads in the place of others."""
    declared = header.structures(HEADER)
    for name, own in {
        "qola_tensor": c_args.Tensor,
        "qola_mha_args": c_args.Args,
        "qola_stage": c_args.Stage,
        "qola_found": c_args.Answer,
    }.items():
        layouts = [
            [(field, getattr(of, field).offset, getattr(of, field).size) for field, *_ in fields]
            for of in (own, declared[name])
            if (fields := of._fields_)
        ]
        assert layouts[0] == layouts[1]
        assert ctypes.sizeof(own) == ctypes.sizeof(declared[name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_numbers_are_those_of_the_header(dtype: str) -> None:
    """Prevents: a data type, or a status, taken for another one."""
    constants = header.values(HEADER)
    args = c_args.arguments(replace(BACKWARD, direction="fwd", dtype=dtype), "gfx950")
    words = {"fp8fp16": "FP8_FP16", "fp8bf16": "FP8_BF16", "fp8fp32": "FP8_FP32"}
    assert args.dtype == constants[f"QOLA_{words.get(dtype, dtype.upper())}"]
    assert args.kernels == constants["QOLA_KERNELS_CK"]
    assert tuple(constants[f"QOLA_{name}"] for name in ("NO_KERNEL", "UNSUPPORTED", "INVALID")) == (
        find._NO_KERNEL,
        find._UNSUPPORTED,
        find._INVALID,
    )
    for mask, name in ((Mask("top_left", 3, 1), "TOP_LEFT"), (BOTTOM_RIGHT, "BOTTOM_RIGHT")):
        args = c_args.arguments(replace(BACKWARD, mask=mask), "gfx950")
        assert args.mask == constants[f"QOLA_MASK_WINDOW_{name}"]
        assert (args.window_left, args.window_right) == (mask.left, mask.right)


def test_what_stands_in_the_fields() -> None:
    """Prevents: another problem asked about than is launched."""
    of = replace(BACKWARD, dropout=Dropout(0.25, 7, 11), bias="bias", dbias=True, assembly=True)
    args = c_args.arguments(replace(of, conversion=2, dq_in_float=False), "gfx950")
    named = ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "seqlen_q", "seqlen_k")
    assert [getattr(args, name) for name in named] == [2, 4, 2, 24, 16, 5, 7]
    assert (args.kernels, args.rounding, args.atomic16, args.group) == (0, 3, 1, 0)
    assert (args.dropout, args.drop_seed, args.drop_offset) == (0.25, 7, 11)
    for name, strides in {
        "q": (5 * 4 * 24, 24, 4 * 24),
        "v": (7 * 2 * 16, 16, 2 * 16),
        "lse": (4 * 5, 5, 0),
        "d_bias": (4 * 5 * 7, 5 * 7, 7),
    }.items():
        tensor = getattr(args, name)
        assert tensor.data
        assert (tensor.stride_batch, tensor.stride_head, tensor.stride_row) == strides
    assert not args.workspace
    grouped = c_args.arguments(replace(BACKWARD, group=True, bias="alibi"), "gfx950")
    assert (grouped.group, grouped.seqlen_q, grouped.max_seqlen_k) == (1, 10, 7)
    assert grouped.seqstart_q
    assert grouped.seqstart_k
    assert (bool(grouped.bias.data), grouped.bias.stride_batch) == (True, 0)
    appended = c_args.arguments(APPEND, "gfx950")
    assert (appended.seqlen_new, appended.page_size, appended.block_table_stride) == (4, 128, 1)
    assert [bool(x) for x in (appended.k_new.data, appended.seqlens_k, appended.q.data)] == [
        *(True, True, False),
    ]
    rotated = c_args.arguments(replace(APPEND, rope="half", rotary=16), "gfx950")
    assert (rotated.rope, rotated.rotary_dim, bool(rotated.q.data)) == (2, 16, True)
    assert rotated.rotary_cos
    assert rotated.rotary_sin
