"""Kernels requested by name: qola creates them from CK's objects, byte for byte like CK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from qola.aiter.tree import read_tree
from qola.codegen.ck.driver import run
from qola.codegen.ck.messages import GeneratorAnswer, GeneratorRequest
from qola.codegen.ck.observe import Recording
from qola.codegen.ck.requested import find_requested
from qola.codegen.ck.rows import Base, Dispatch, Row, read_base
from qola.codegen.types import FieldValue
from qola.kernel.config import KernelConfig
from qola.kernel.selection import RequestedKernel, VariantFilter
from qola_lab.tests.fmha.observed import quiet, recorded

ROLES = {
    "fwd": "fwd",
    "fwd_splitkv": "splitkv",
    "batch_prefill": "batch_prefill",
    "pagedkv_prefill": "pagedkv",
    "fwd_appendkv": "appendkv",
    "bwd": "dq_dk_dv",
}
NEW_TILE = "b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32"


class Observation(NamedTuple):
    """The recording, dispatch and rows of a direction of CK."""

    recording: Recording
    dispatch: Dispatch
    base: Base


def script(tree: Path) -> Path:
    return tree / read_tree(tree).fmha_dir / "generate.py"


@cache
def observe(tree: Path, direction: str) -> Observation:
    recording = recorded(tree, direction)
    dispatch = Dispatch(recording)
    return Observation(recording, dispatch, read_base(direction, recording, dispatch))


def request_like(
    row: Row, direction: str, place: str = "here", /, **fields: FieldValue
) -> RequestedKernel:
    """Return a request for the kernel of a row, with changed fields."""
    config = KernelConfig.from_fields(direction, row.main.role, {**row.main.fields, **fields})
    return RequestedKernel(config, place)


def first_row(tree: Path, direction: str, **fields: FieldValue) -> Row:
    """Return the first row of CK whose main kernel has the given fields."""
    rows = observe(tree, direction).base.rows
    return next(row for row in rows if fields.items() <= row.main.fields.items())


FORWARD: Mapping[str, FieldValue] = {
    **{"arch": "gfx950", "dtype": "bf16", "hdim_q": 64, "mode": "batch", "bias": "no"},
    **{"mask": False, "lse": True, "dropout": False, "logits": False, "skip": False},
    **{"pipeline": "qr_async", "skpad": False},
}


def request(tree: Path, direction: str, *kernels: RequestedKernel, **more: Any) -> GeneratorRequest:
    """Return a request for kernels by name, without variants."""
    request = GeneratorRequest(
        script=str(script(tree)),
        direction=direction,
        native=(0, 600),
        archs=("gfx950",),
        folders=((("gfx950",), "dispatch"),),
        filters=(VariantFilter.nothing(600),),
        kernels=kernels,
        dropped=False,
        explain=False,
        keep_unreachable=False,
        origin="receipt 600",
    )
    return replace(request, **more)


def generate(tree: Path, direction: str, *kernels: RequestedKernel, **more: Any) -> GeneratorAnswer:
    """Return the answer of the generator driver for kernels by name, and variants."""
    with TemporaryDirectory() as scratch, quiet():
        return run(request(tree, direction, *kernels, scratch=scratch, **more))


@pytest.mark.quick(3)
@pytest.mark.parametrize("direction", ROLES)
def test_kernels_of_ck_are_recreated_byte_for_byte(aiter_tree: Path, direction: str) -> None:
    """Prevents: a kernel that differs from CK's template, or that another row launches."""
    recording, dispatch, base = observe(aiter_tree, direction)
    names = list(dict.fromkeys(row.main.name for row in base.rows))
    for name in names[:: len(names) // 12]:
        rows = [row for row in base.rows if row.main.name == name]
        file = f"{name}.cpp"
        without = Recording(
            recording.pools,
            {n: text for n, text in recording.files.items() if n != file},
            {n: item for n, item in recording.kernels.items() if n != file},
        )
        others = replace(base, rows=[row for row in base.rows if row.main.name != name])
        kernel_request = request(aiter_tree, direction, request_like(rows[0], direction))
        ((requested,), errors) = find_requested(kernel_request, without, dispatch, {600: others})
        assert (errors, requested.made) == ([], True)
        main = requested.rows[0].main
        assert (main.name, main.source) == (name, rows[0].main.source)
        assert [row.call for row in requested.rows] == [row.call for row in rows]
        assert [row.kernels for row in requested.rows] == [row.kernels for row in rows]


NOT_NAMED = "no [[kernels]] names it, and there are no variants"


def test_kernel_of_ck_selects_its_row(aiter_tree: Path) -> None:
    """Prevents: another kernel, or the whole receipt, instead of the requested kernel of CK."""
    row = first_row(aiter_tree, "fwd", **FORWARD)
    answer = generate(aiter_tree, "fwd", request_like(row, "fwd"))
    assert [kernel.name for kernel in answer.kernels] == [row.main.name]
    explanations = generate(aiter_tree, "fwd", request_like(row, "fwd"), explain=True).explanations
    (selected,) = (explanation for explanation in explanations if not explanation.dropped_by)
    assert (selected.name, selected.asked_by) == (row.main.name, ("here",))
    assert {explanation.dropped_by for explanation in explanations} == {"", NOT_NAMED}
    (source,) = answer.sources
    assert answer.texts[source.file] == observe(aiter_tree, "fwd").dispatch.text([row.registered])


def test_new_tile_precedes_ck_rows(aiter_tree: Path) -> None:
    """Prevents: a requested kernel that is unreachable behind CK's kernels."""
    row = first_row(aiter_tree, "fwd", **FORWARD)
    requested = request_like(row, "fwd", tile=NEW_TILE)
    answer = generate(aiter_tree, "fwd", requested)
    (kernel,) = answer.kernels
    assert NEW_TILE in kernel.name
    assert dict(kernel.fields) == requested.config.fields()
    assert "ck_tile::sequence<64, 64, 32, 64, 32, 64>" in answer.texts[kernel.file]
    variants = VariantFilter(
        0, "variant", 600, {n: (FORWARD[n],) for n in ("dtype", "mode")}, ((64, 64),)
    )
    wide = NEW_TILE.replace("b64x64x32x64", "b128x32x32x64")
    other_hdim = request_like(row, "fwd", "there", hdim_q=72, hdim_v=72, tile=TILE_72)
    both = generate(
        aiter_tree, "fwd", request_like(row, "fwd", tile=wide), other_hdim, filters=(variants,)
    )
    assert both.refused == ()
    names = [kernel.name for kernel in both.kernels]
    assert len(names) > 20
    assert (wide in names[0], TILE_72 in names[-1]) == (True, True)
    assert "72" in (text := both.texts[both.sources[0].file])
    assert text.index("128, 32, 32, 64") < text.index("128, 64, 32, 64") < text.index("<= 72")


@pytest.mark.parametrize(
    ("direction", "tile", "text"),
    [
        ("fwd_appendkv", "b32x64x64x64", "<64, FmhaFwdFp16, 32, 64, 64, 64, true,"),
        (
            "pagedkv_prefill",
            "b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x16_w16x16x16",
            "ck_tile::sequence<64, 64, 32, 64, 32, 64>",
        ),
    ],
)
def test_new_tiles_in_added_directions(
    aiter_tree: Path, direction: str, tile: str, text: str
) -> None:
    """Prevents: added directions that only accept CK's tiles."""
    rows = observe(aiter_tree, direction).base.rows
    fp16_row = next(row for row in rows if row.main.fields["dtype"] == "fp16")
    requested = request_like(fp16_row, direction, hdim_q=64, hdim_v=64, tile=tile)
    answer = generate(aiter_tree, direction, requested)
    (kernel,) = answer.kernels
    assert tile in kernel.name
    assert dict(kernel.fields) == requested.config.fields()
    assert text in answer.texts[kernel.file]


TILE_72 = "b128x64x32x72x32x96_r4x1x1_r4x1x1_w32x32x16_w32x32x16"


def test_kernel_of_equal_cpp_type_replaces_ck_kernel(aiter_tree: Path) -> None:
    """Prevents: two definitions of a C++ type, which the linker refuses."""
    row = first_row(aiter_tree, "fwd", **FORWARD)
    answer = generate(
        *(aiter_tree, "fwd"),
        *(request_like(row, "fwd", tile=f"{row.main.fields['tile']}_o2"),),
        filters=(VariantFilter(0, "v", 600, {"lse": (True,)}, ((64, 64),)),),
        explain=True,
    )
    names = [kernel.name for kernel in answer.kernels]
    assert row.main.name not in names
    assert sum("_o2_" in name for name in names) == 1
    (reason,) = (e.dropped_by for e in answer.explanations if e.name == row.main.name)
    assert "same type in C++" in reason


@pytest.mark.thorough
def test_helper_kernels_are_included(aiter_tree: Path) -> None:
    """Prevents: a backward kernel without its helper kernels."""
    fields: dict[str, FieldValue] = {"arch": "gfx950", "hdim_q": 64, "mode": "batch"}
    fields |= {"deterministic": True, "trload": False, "dpad": 8, "dvpad": 8}
    row = first_row(aiter_tree, "bwd", **fields)
    tile = str(row.main.fields["tile"]).replace("b32x128x", "b32x64x")
    answer = generate(aiter_tree, "bwd", request_like(row, "bwd", tile=tile))
    roles = [kernel.role for kernel in answer.kernels]
    assert sorted(set(roles)) == ["convert_dq", "dot_do_o", "dq_dk_dv"]
    convert = next(kernel for kernel in answer.kernels if kernel.role == "convert_dq")
    # CK has no convert_dq kernel with tile n of 64: qola creates it for the row.
    assert "b64x64_" in convert.name
    assert "fmha_bwd_convert_dq_traits_" in answer.texts[convert.file]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({"colour": 1}, {}, "colour, which they do not have"),
        ({"arch": "gfx1201"}, {}, "arch gfx1201, while CK has kernels for gfx950"),
        ({"tile": "b64x64"}, {}, "2 numbers after b, while CK's tile has 6"),
        ({"hdim_v": 96}, {}, "hdim_v 64 in place of 96"),
        ({"tile": NEW_TILE}, {"dropped": True}, "which is dropped"),
        ({"tile": NEW_TILE}, {"family": "fwd_splitkv_combine"}, "is a helper kernel"),
    ],
)
def test_impossible_kernels_are_refused(
    aiter_tree: Path, changes: dict[str, FieldValue], more: dict[str, Any], message: str
) -> None:
    """Prevents: another kernel instead of the requested kernel, without an error."""
    requested = request_like(first_row(aiter_tree, "fwd", **FORWARD), "fwd", "here", **changes)
    requested = replace(
        requested, config=replace(requested.config, family=more.pop("family", "fwd"))
    )
    answer = generate(aiter_tree, "fwd", requested, **more)
    assert answer.kernels == ()
    (finding,) = answer.refused
    assert finding.place == "here"
    assert message in finding.found + finding.expected


def test_two_kernels_of_equal_cpp_type_are_refused(aiter_tree: Path) -> None:
    """Prevents: a library that contains only one of two requested kernels."""
    row = first_row(aiter_tree, "fwd", **FORWARD)
    tiles = NEW_TILE, f"{NEW_TILE}_o2"
    requested = [
        request_like(row, "fwd", label, tile=tile) for label, tile in zip("ab", tiles, strict=True)
    ]
    answer = generate(aiter_tree, "fwd", *requested)
    (finding,) = answer.refused
    assert (finding.place, "of the same type in C++ as a" in finding.found) == ("b", True)


@pytest.mark.thorough
def test_unreachable_requested_kernel_is_a_warning(aiter_tree: Path) -> None:
    """Prevents: a requested kernel that is omitted without a warning."""
    fields: dict[str, FieldValue] = {"arch": "gfx950", "mode": "batch", "dtype": "bf16"}
    fields |= {"dpad": 8, "dvpad": 8, "mask": False, "bias": "no", "deterministic": False}
    rows = [first_row(aiter_tree, "bwd", hdim_q=hdim, **fields) for hdim in (64, 32)]
    both = [request_like(row, "bwd", f"d{row.main.fields['hdim_q']}") for row in rows]
    answer = generate(aiter_tree, "bwd", *both)
    mains = [kernel for kernel in answer.kernels if kernel.role == "dq_dk_dv"]
    assert [dict(kernel.fields)["hdim_q"] for kernel in mains] == [64]
    (warning,) = [finding for finding in answer.findings if finding.severity == "warning"]
    assert warning.place == "d32"
    assert "tests the 64x64 bucket before that of 32x32" in warning.found
