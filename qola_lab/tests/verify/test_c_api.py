"""Attention problems as structures of the C API, and as arguments of entry points."""

from __future__ import annotations

import ctypes
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from qola_lab.problems import DTYPES, AttentionProblem, Layout
from qola_lab.reference.masks import BOTTOM_RIGHT, Mask
from qola_lab.verify import c_api
from qola_lab.verify.tensors import entry_values
from tests.library import header

HEADER = Path(__file__).parents[3] / "runtime/api/qola_c.h"
C_API = HEADER.with_name("qola_c_fill.h")
BACKWARD = AttentionProblem("bwd", "bf16", 24, 16, (5, 5), (7, 7), 4, 2, 0.2, return_lse=True)
APPEND = AttentionProblem(
    "fwd_appendkv",
    "fp16",
    64,
    64,
    (3,),
    (9,),
    2,
    1,
    0.125,
    seqlen_knew=4,
    layout=Layout(page_block_size=128),
)


def test_structures_match_the_header() -> None:
    """Prevents: fields that a library reads at other offsets than Python writes."""
    declared = header.structures(HEADER)
    for name, structure in {
        "qola_tensor": c_api.Tensor,
        "qola_mha_args": c_api.Args,
        "qola_stage": c_api._Stage,
        "qola_found": c_api._Found,
    }.items():
        layouts = [
            [
                (field, getattr(type_, field).offset, getattr(type_, field).size)
                for field, *_ in fields
            ]
            for type_ in (structure, declared[name])
            if (fields := type_._fields_)
        ]
        assert layouts[0] == layouts[1]
        assert ctypes.sizeof(structure) == ctypes.sizeof(declared[name])


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_match_the_header(dtype: str) -> None:
    """Prevents: another data type, mask or status than the C API's constants."""
    constants = header.values(HEADER)
    args = c_api.make_args(replace(BACKWARD, direction="fwd", dtype=dtype), "gfx950")
    dtype_names = {"fp8fp16": "FP8_FP16", "fp8bf16": "FP8_BF16", "fp8fp32": "FP8_FP32"}
    assert args.dtype == constants[f"QOLA_{dtype_names.get(dtype, dtype.upper())}"]
    assert args.kernels == constants["QOLA_KERNELS_CK"]
    assert tuple(constants[f"QOLA_{name}"] for name in ("NO_KERNEL", "UNSUPPORTED", "INVALID")) == (
        c_api._NO_KERNEL,
        c_api._UNSUPPORTED,
        c_api._INVALID,
    )
    for mask, name in ((Mask("top_left", 3, 1), "TOP_LEFT"), (BOTTOM_RIGHT, "BOTTOM_RIGHT")):
        args = c_api.make_args(replace(BACKWARD, **asdict(mask)), "gfx950")
        assert args.mask == constants[f"QOLA_MASK_WINDOW_{name}"]
        assert (args.window_left, args.window_right) == (
            mask.window_size_left,
            mask.window_size_right,
        )


def test_values_of_the_fields() -> None:
    """Prevents: a find query for another problem than the launched one."""
    problem = replace(
        BACKWARD,
        dropout_p=0.25,
        drop_seed=7,
        drop_offset=11,
        bias_type="bias",
        has_dbias=True,
        use_asm=True,
    )
    args = c_api.make_args(replace(problem, how_v3_bf16_cvt=2, is_v3_atomic_fp32=False), "gfx950")
    shape_fields = ("batch", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "seqlen_q", "seqlen_k")
    assert [getattr(args, name) for name in shape_fields] == [2, 4, 2, 24, 16, 5, 7]
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
    grouped = c_api.make_args(replace(BACKWARD, mode="group", bias_type="alibi"), "gfx950")
    assert (grouped.group, grouped.seqlen_q, grouped.max_seqlen_k) == (1, 10, 7)
    assert grouped.seqstart_q
    assert grouped.seqstart_k
    assert (bool(grouped.bias.data), grouped.bias.stride_batch) == (True, 0)
    appended = c_api.make_args(APPEND, "gfx950")
    assert (appended.seqlen_new, appended.page_size, appended.block_table_stride) == (4, 128, 1)
    assert [bool(x) for x in (appended.k_new.data, appended.seqlens_k, appended.q.data)] == [
        *(True, True, False),
    ]
    rotated = c_api.make_args(replace(APPEND, rope_type="half", rotary_dim=16), "gfx950")
    assert (rotated.rope, rotated.rotary_dim, bool(rotated.q.data)) == (2, 16, True)
    assert rotated.rotary_cos
    assert rotated.rotary_sin


def undropped(text: str, probability: float) -> float:
    """Return p_undrop in a C++ file, a constant minus the probability, as float32."""
    pattern = r"\bp_undrop(?:,| =) ([\d.]+)f? - (?:given\.dropout|p_dropout)\b"
    (constant,) = re.findall(pattern, text)
    return float(np.float32(float(constant) - float(np.float32(probability))))


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.25, 0.5, 0.8])
def test_p_undrop_matches_the_c_api_and_aiter(probability: float, aiter_tree: Path) -> None:
    """Prevents: correct dropout kernels that fail because verification passes 1 / (1 - p)."""
    files = [C_API, *sorted(aiter_tree.glob("aiter_meta/csrc/py_itfs_*/*mha*_bwd*.cu"))]
    assert len(files) == 5
    problem = replace(BACKWARD, dropout_p=probability)
    values = entry_values(problem, "gfx950", ())
    assert values["p_drop"] == probability
    for file in files:
        assert values["p_undrop"] == undropped(file.read_text("utf-8"), probability), file
