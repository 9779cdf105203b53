"""C functions of optional directions: kernels, launches, and refused fields."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from gfxemu.fake_hip import FakeHip, Launch, read_log

BUNDLE = Path(os.environ["QOLA_TEST_PAGED"]).resolve()
FAKE = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
IS_LAZY = "lazy" in Path(os.environ["QOLA_TEST_PAGED"]).name
OK, NO_KERNEL, UNAVAILABLE, UNSUPPORTED, INVALID = 0, -1, -4, -5, -6

_PROGRAM = """
import ctypes, json, sys
from pathlib import Path
from tests.library.header import structures
bundle = Path(sys.argv[1])
(library,) = (ctypes.CDLL(str(path)) for path in bundle.glob("lib/*_libmha_fwd.so"))
made = structures(bundle / "include/qola_c.h")
args_of, found_of = made["qola_mha_args"], made["qola_found"]
for case in json.loads(sys.argv[2]):
    function = lambda name: getattr(library, "qola_paged_" + case["entry"] + name)
    error = function("_last_error")
    error.restype = ctypes.c_char_p
    args = args_of(struct_size=case.get("size", ctypes.sizeof(args_of)))
    found = found_of(struct_size=ctypes.sizeof(found_of))
    for name, value in case["fields"].items():
        of, _, part = name.rpartition(".")
        setattr(getattr(args, of) if of else args, part, value)
    size = ctypes.c_uint64(1)
    asked = function("_find")(ctypes.byref(args), ctypes.byref(found))
    sized = function("_workspace_size")(ctypes.byref(args), ctypes.byref(size))
    status = function("")(ctypes.byref(args), None)
    stages = [s.kernel or s.symbol for s in found.stages[: found.stage_count]]
    words = [stage.decode() for stage in stages]
    print("\\n" + json.dumps([asked, words, [sized, size.value], status, error().decode()]))
"""

#: Addresses that are never read, because the fake runtime runs no kernel.
Q, K, V, K_NEW, V_NEW, LENGTHS, COS, SIN, TABLE, OUT = (0x1000 * n for n in range(1, 11))
SIZES = {"dtype": 1, "batch": 2, "nhead_q": 4, "nhead_k": 2, "hdim_q": 128, "hdim_v": 128}


def tensor(name: str, data: int, count: int, heads: int) -> dict[str, int]:
    """Return the fields of a tensor of [batch, row, head, 128]."""
    strides = {"stride_batch": count * heads * 128, "stride_head": 128, "stride_row": heads * 128}
    return {f"{name}.data": data} | {f"{name}.{key}": value for key, value in strides.items()}


APPEND: dict[str, Any] = {
    **SIZES,
    **tensor("k", K, 300, 2),
    **tensor("v", V, 300, 2),
    **tensor("k_new", K_NEW, 70, 2),
    **tensor("v_new", V_NEW, 70, 2),
    **{"seqlen_new": 70, "seqlens_k": LENGTHS},
}
ROTATE: dict[str, Any] = {
    **APPEND,
    **tensor("q", Q, 64, 4),
    **{"seqlen_q": 64, "rope": 2, "rotary_dim": 96, "rotary_cos": COS, "rotary_sin": SIN},
}
PAGES = {"block_table": TABLE, "block_table_stride": 3, "page_size": 128}
PREFILL: dict[str, Any] = {
    **SIZES,
    **tensor("q", Q, 100, 4),
    **tensor("k", K, 128, 2),
    **tensor("v", V, 128, 2),
    **tensor("o", OUT, 100, 4),
    **PAGES,
    **{"seqlen_q": 100, "seqlen_k": 256, "seqlens_k": LENGTHS, "mask": 2},
}
APPENDING, PAGED = "mha_fwd_appendkv", "mha_fwd_pagedkv"


def answers(cases: list[dict[str, Any]], tmp_path: Path) -> tuple[list[list[Any]], list[Launch]]:
    """Return the answer for each case, and all launches."""
    hip = FakeHip(FAKE, "gfx950", (BUNDLE / "lib",))
    command = [sys.executable, "-c", _PROGRAM, str(BUNDLE), json.dumps(cases)]
    env = {"QOLA_LAZY": "never", "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    result = hip.run(command, tmp_path / "log", **env)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("[")]
    return [json.loads(line) for line in lines], read_log(tmp_path / "log")


FOUND: list[tuple[str, dict[str, Any], str]] = [
    (APPENDING, APPEND, "fmha_fwd_appendkv_d128_fp16_b64x64x128x128_vr_psk_gfx9"),
    (APPENDING, APPEND | PAGES, "fmha_fwd_appendkv_d128_fp16_b64x64x128x128_vr_psk_pagedkv_gfx9"),
    (APPENDING, ROTATE, "fmha_fwd_appendkv_d128_fp16_b64x64x128x128_vr_pskd_half_gfx9"),
    (
        APPENDING,
        ROTATE | PAGES | {"rope": 1, "seqlen_q": 65, "mask": 2},
        "fmha_fwd_appendkv_d128_fp16_b64x64x128x128_vr_psskddv_inter_pagedkv_gfx9",
    ),
    (PAGED, PREFILL, "_qr_pagedkv_vr_pssk_nlogits_nbias_mask_nlse_nskip_nsquant_pagedkv_gfx9"),
    (
        PAGED,
        PREFILL | {"seqlens_k": None, "logits_soft_cap": 20.0},
        "_qr_pagedkv_vr_ps_logits_nbias_mask_nlse_nskip_nsquant_pagedkv_gfx9",
    ),
]


def test_find_names_the_launched_kernel(tmp_path: Path) -> None:
    """Prevents: C callers cannot use a direction; `_find` names another kernel than is launched."""
    cases = [{"entry": entry, "fields": fields} for entry, fields, _ in FOUND]
    results, launches = answers(cases, tmp_path)
    for (_, _, name), (find_status, stages, sized, status, error) in zip(
        FOUND, results, strict=True
    ):
        assert (find_status, sized) == (OK, [OK, 0]), error
        assert len(stages) == 1
        assert not IS_LAZY or stages[0].endswith(name)
        # A lazy library without a compiler cannot launch.
        assert status == (UNAVAILABLE if IS_LAZY else OK), error
    symbols = [stages[0] for _, stages, *_ in results]
    assert [launch.kernel for launch in launches] == ([] if IS_LAZY else symbols)


@pytest.mark.skipif(IS_LAZY, reason="launches nothing")
def test_the_arguments_of_a_launch(tmp_path: Path) -> None:
    """Prevents: a field of a C caller reaches the kernel as another argument."""
    cases = [
        {"entry": APPENDING, "fields": ROTATE | {"mask": 1}},
        {"entry": APPENDING, "fields": APPEND | PAGES},
        {"entry": PAGED, "fields": PREFILL},
    ]
    _, (rotated, paged, prefill) = answers(cases, tmp_path)
    # One workgroup per 64 rows of Q (or new rows), per head of Q and per sequence.
    assert [rotated.grid, paged.grid] == [(2, 4, 2), (2, 4, 2)]
    pointers = struct.unpack_from("<6Q", rotated.kernarg)
    assert pointers == (Q, K, K_NEW, V, V_NEW, LENGTHS)
    sizes = struct.unpack_from("<22i", rotated.kernarg, 48)
    assert sizes[:7] == (64, -1, 70, 128, 128, 4, 2)
    assert sizes[7:12] == (512, 256, 256, 256, 256)
    assert sizes[12:17] == (128,) * 5
    assert sizes[17:] == (64 * 512, 300 * 256, 70 * 256, 300 * 256, 70 * 256)
    assert struct.unpack_from("<2Qi?", rotated.kernarg, 136) == (COS, SIN, 96, True)
    assert struct.unpack_from("<Q2i", paged.kernarg, 136) == (TABLE, 3, 128)
    # One tile of 128 rows. The order of the grid's dimensions may differ, but not their product.
    assert prefill.grid[0] * prefill.grid[1] * prefill.grid[2] == 1 * 4 * 2
    for pointer in (Q, K, V, OUT, TABLE, LENGTHS):
        assert struct.pack("<Q", pointer) in prefill.kernarg


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    (APPENDING, {**APPEND, "k_new.data": None}, INVALID, "k_new: null"),
    (APPENDING, {**APPEND, "seqlens_k": None}, INVALID, "seqlens_k: null"),
    (APPENDING, {**APPEND, "seqlen_new": 0}, INVALID, "seqlen_new: 0, expected rows"),
    (APPENDING, {**APPEND, "rotary_dim": 32}, INVALID, "rope is QOLA_ROPE_NONE"),
    (APPENDING, {**APPEND, "q.data": Q}, INVALID, "nothing would be done to Q"),
    (APPENDING, {**ROTATE, "rope": 3}, INVALID, "rope: 3, expected a qola_rope"),
    (APPENDING, {**ROTATE, "rotary_dim": 24}, INVALID, "rotary_dim: 24, expected a multiple of 16"),
    (APPENDING, {**ROTATE, "rotary_dim": 144}, INVALID, "rotary_dim: 144"),
    (APPENDING, {**ROTATE, "rotary_sin": None}, INVALID, "rotary_cos, rotary_sin: null"),
    (APPENDING, APPEND | PAGES | {"page_size": 64}, INVALID, "page_size: 64, expected a multiple"),
    (APPENDING, APPEND | PAGES | {"page_size": 192}, INVALID, "page_size: 192, expected"),
    (APPENDING, APPEND | PAGES | {"cache_batch_idx": Q}, INVALID, "cache_batch_idx: set together"),
    (APPENDING, {**APPEND, "nhead_k": 3}, INVALID, "nhead_k: 3"),
    (APPENDING, {**APPEND, "group": 1}, UNSUPPORTED, "group: set, and mha_fwd_appendkv"),
    (APPENDING, {**APPEND, "o.data": OUT}, UNSUPPORTED, "o: set, and mha_fwd_appendkv"),
    (APPENDING, {**APPEND, "scale": 0.5}, UNSUPPORTED, "scale: set"),
    (APPENDING, {**APPEND, "dtype": 2}, NO_KERNEL, "no kernel"),
    (PAGED, {**PREFILL, "page_size": 0}, INVALID, "page_size: 0, expected a multiple of 128"),
    (PAGED, {**PREFILL, "page_size": -128}, INVALID, "page_size: -128, expected"),
    (PAGED, {**PREFILL, "page_size": 64}, INVALID, "page_size: 64, expected a multiple of 128"),
    (PAGED, {**PREFILL, "page_size": 192}, INVALID, "page_size: 192, expected"),
    (PAGED, {**PREFILL, "k_new.data": K}, UNSUPPORTED, "k_new: set, and mha_fwd_pagedkv"),
    (PAGED, {**PREFILL, "num_splits": 2}, UNSUPPORTED, "num_splits: set"),
    (PAGED, {**PREFILL, "dropout": 0.5}, UNSUPPORTED, "dropout: set"),
    # Valid fields without a matching kernel.
    (PAGED, {**PREFILL, "lse.data": OUT}, NO_KERNEL, "no kernel"),
    (PAGED, {**PREFILL, "block_table": None}, NO_KERNEL, "no kernel"),
]


def test_errors_name_the_wrong_field(tmp_path: Path) -> None:
    """Prevents: a kernel writes to wrong rows, or a field is silently ignored."""
    cases = [{"entry": entry, "fields": fields} for entry, fields, *_ in REFUSED]
    results, launches = answers(cases, tmp_path)
    assert launches == []
    for (entry, _, status, text), (*_, returned, error) in zip(REFUSED, results, strict=True):
        assert (returned, text in error) == (status, True), (entry, text, returned, error)


def test_a_program_of_the_first_header(tmp_path: Path) -> None:
    """Prevents: a program of an older header is refused because the structure has grown."""
    (answer,), _ = answers([{"entry": PAGED, "fields": PREFILL, "size": 872}], tmp_path)
    assert answer[0] == OK
