"""Directions that a manifest adds: launches, and runs that are compared with float64."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qola.fmha import reference
from qola.fmha.agreement import compared
from qola.fmha.build import built_by
from qola.fmha.problem import ArraysError, Problem, problem
from qola.fmha.runner import Runner
from qola.fmha.sweep import sweep
from qola.fmha.validator import Validator
from qola.reference.masks import BOTTOM_RIGHT
from qola.verify.host import Built
from qola.verify.run import called
from tests.emulate.caches import appended, drawn

ARCH = "gfx950"
HEADS: dict[str, Any] = {"heads": 4, "heads_k": 2, "hdim": 128}
APPEND = problem("fwd_appendkv", "fp16", rows=5, columns=[133, 40], new=20, **HEADS)
LENGTHS: dict[str, Any] = {"rows": [40, 7], "columns": [140, 30]}
PREFILL = problem("pagedkv_prefill", "fp16", **LENGTHS, **HEADS, page=128, mask=BOTTOM_RIGHT)


@pytest.fixture(scope="module")
def library() -> Built:
    (found,) = built_by(Path(os.environ["QOLA_TEST_PROGRAM"]).absolute()).values()
    return found


@pytest.mark.parametrize("page", [0, 128])
@pytest.mark.parametrize(
    "of",
    [
        APPEND,
        replace(APPEND, rope="half", rotary=128, mask=BOTTOM_RIGHT),
        replace(APPEND, rope="inter", rotary=64, order="bhsd"),
    ],
    ids=str,
)
def test_rows_are_appended_and_rotated(library: Built, of: Problem, page: int) -> None:
    """Prevents: a cache that holds other rows than a model wrote, or rows of another angle."""
    of = replace(of, page=page)
    run, right = appended(library, ARCH, of)
    assert run.passed, [*map(str, run.verdicts), *run.done.findings]
    (name,) = run.launched
    assert ("_pagedkv_" in name, f"_{of.rope}_" in name) == (page > 0, of.rope != "no")
    assert set(run.results) == {"k", "v"} | ({"q"} if of.rope != "no" else set())
    check = Validator.of("fp16").check
    for one, result in run.results.items():
        assert check(result, getattr(right, one)).passed


def test_attention_over_pages(library: Built) -> None:
    """Prevents: attention over pages in another order than the block table's."""
    shapes = PREFILL.shapes()
    arrays = [drawn(shapes[name], n) for n, name in enumerate(("q", "k", "v"))]
    run = Runner(library, ARCH).paged_prefill(PREFILL, *arrays)
    assert run.passed, [*map(str, run.verdicts), *run.done.findings]
    (name,) = run.launched
    assert name.startswith("fmha_fwd_pagedkv_d128_fp16_group_")
    wanted = reference.forward(PREFILL, *arrays)
    assert Validator.of("fp16").check(run.results["o"], wanted.o).passed
    with pytest.raises(ArraysError, match="pagedkv_prefill, with pages"):
        Runner(library, ARCH).paged_prefill(replace(PREFILL, page=0), *arrays)


def test_kernel_grid_and_arguments(library: Built) -> None:
    """Prevents: a kernel that is handed other sizes than it is asked for."""
    rotated = replace(APPEND, rows=(200, 200), rope="half", rotary=96, mask=BOTTOM_RIGHT)
    case = called(library, ARCH, [rotated, replace(APPEND, page=128), PREFILL])
    (append,), (paged,), (prefill,) = (call.launches for call in case.calls)
    assert (append.grid, paged.grid) == ((4, 4, 2), (1, 4, 2))
    assert struct.unpack_from("<7i", append.arguments, 48) == (200, -1, 20, 128, 128, 4, 2)
    assert struct.unpack_from("<i?", append.arguments, 152) == (96, True)
    assert [name for _, name, _ in append.addresses] == [
        *("q_ptr", "k_ptr", "knew_ptr", "v_ptr", "vnew_ptr", "seqlen_k_ptr"),
        *("rotary_cos_ptr", "rotary_sin_ptr"),
    ]
    assert "block_table_ptr" in {name for _, name, _ in paged.addresses}
    assert "block_table_ptr" in {name for _, name, _ in prefill.addresses}
    assert append.names[0].endswith("_vr_psskddv_half_gfx9")


def test_the_library_launches_what_is_read(library: Built) -> None:
    """Prevents: a registry that selects other kernels than the compiled dispatch does."""
    found = compared(library, ARCH, [*sweep(library.kernels, 300), PREFILL, APPEND])
    assert [one.line() for one in found if not one.agrees] == []
    assert {one.unasked.partition(":")[0] for one in found} <= {"", "page_size", "rotary_dim"}
    assert sum(bool(one.launched) for one in found) > 60
    assert sum(one.as_found is True and bool(one.launched) for one in found) > 40


def test_what_the_c_functions_alone_refuse(library: Built) -> None:
    """Prevents: a problem that only C refuses, told as if the library launched something wrong."""
    (found,) = compared(library, ARCH, [replace(APPEND, page=64)])
    assert found.unasked == "page_size: 64, expected a multiple of 128"
    assert (found.as_selected, found.as_found, found.agrees) == (True, None, True)
