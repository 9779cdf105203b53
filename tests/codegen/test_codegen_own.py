"""Kernels that are asked for by themselves: made of CK's objects, byte for byte as CK would."""

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
from qola.codegen.ck.predicates import VariantFilter
from qola.codegen.ck.requested import find_requested
from qola.codegen.ck.rows import Base, Dispatch, Row, read_base
from qola.codegen.types import FieldValue, RequestedKernel
from qola.kernel.config import KernelConfig
from tests.fmha.observed import quiet, recorded

ROLES = {
    "fwd": "fwd",
    "fwd_splitkv": "splitkv",
    "batch_prefill": "batch_prefill",
    "pagedkv_prefill": "pagedkv",
    "fwd_appendkv": "appendkv",
    "bwd": "dq_dk_dv",
}
OWN_TILE = "b64x64x32x64x32x64_r4x1x1_r4x1x1_w16x16x32_w16x16x32"


class Seen(NamedTuple):
    """A direction of CK's, as it is watched."""

    recording: Recording
    dispatch: Dispatch
    base: Base


def script(tree: Path) -> Path:
    return tree / read_tree(tree).fmha_dir / "generate.py"


@cache
def seen(tree: Path, direction: str) -> Seen:
    recording = recorded(tree, direction)
    dispatch = Dispatch(recording)
    return Seen(recording, dispatch, read_base(direction, recording, dispatch))


def asked(
    row: Row, direction: str, label: str = "here", /, **fields: FieldValue
) -> RequestedKernel:
    """A kernel like that of a row."""
    config = KernelConfig.from_fields(direction, row.main.role, {**row.main.fields, **fields})
    return RequestedKernel(label, config)


def first(tree: Path, direction: str, **fields: FieldValue) -> Row:
    """The first row of CK's whose main kernel has fields."""
    rows = seen(tree, direction).base.rows
    return next(row for row in rows if fields.items() <= row.main.fields.items())


FORWARD: Mapping[str, FieldValue] = {
    **{"arch": "gfx950", "dtype": "bf16", "hdim_q": 64, "mode": "batch", "bias": "no"},
    **{"mask": False, "lse": True, "dropout": False, "logits": False, "skip": False},
    **{"pipeline": "qr_async", "skpad": False},
}


def request(tree: Path, direction: str, *kernels: RequestedKernel, **more: Any) -> GeneratorRequest:
    """A request for kernels by themselves."""
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


def generated(
    tree: Path, direction: str, *kernels: RequestedKernel, **more: Any
) -> GeneratorAnswer:
    """The answer of a generator process for kernels by themselves, and variants."""
    with TemporaryDirectory() as scratch, quiet():
        return run(request(tree, direction, *kernels, scratch=scratch, **more))


@pytest.mark.quick(3)
@pytest.mark.parametrize("direction", ROLES)
def test_kernels_of_ck_are_made_again_byte_for_byte(aiter_tree: Path, direction: str) -> None:
    """Prevents: a kernel that differs from CK's template, or is launched by another row."""
    recording, dispatch, base = seen(aiter_tree, direction)
    names = list(dict.fromkeys(row.main.name for row in base.rows))
    for name in names[:: len(names) // 12]:
        rows = [row for row in base.rows if row.main.name == name]
        file = f"{name}.cpp"
        without = Recording(
            recording.pools,
            {n: text for n, text in recording.files.items() if n != file},
            {n: item for n, item in recording.kernels.items() if n != file},
        )
        others = Base([row for row in base.rows if row.main.name != name], base.loose)
        wanted = request(aiter_tree, direction, asked(rows[0], direction))
        ((found,), wrong) = find_requested(wanted, without, dispatch, {600: others})
        assert (wrong, found.made) == ([], True)
        made = found.rows[0].main
        assert (made.name, made.source) == (name, rows[0].main.source)
        assert [row.call for row in found.rows] == [row.call for row in rows]
        assert [row.kernels for row in found.rows] == [row.kernels for row in rows]


NOT_NAMED = "no [[kernels]] names it, and there are no variants"


def test_a_kernel_of_ck_is_its_row(aiter_tree: Path) -> None:
    """Prevents: another kernel, or all of a receipt, where one of CK's is asked for."""
    row = first(aiter_tree, "fwd", **FORWARD)
    answer = generated(aiter_tree, "fwd", asked(row, "fwd"))
    assert [kernel.name for kernel in answer.kernels] == [row.main.name]
    explanations = generated(aiter_tree, "fwd", asked(row, "fwd"), explain=True).explanations
    (kept,) = (one for one in explanations if not one.dropped_by)
    assert (kept.name, kept.asked_by) == (row.main.name, ("here",))
    assert {one.dropped_by for one in explanations} == {"", NOT_NAMED}
    (source,) = answer.sources
    assert answer.texts[source.file] == seen(aiter_tree, "fwd").dispatch.text([row.registered])


def test_an_own_tile_is_asked_first(aiter_tree: Path) -> None:
    """Prevents: a kernel that is asked for and behind CK's own, which take its problems."""
    row = first(aiter_tree, "fwd", **FORWARD)
    own = asked(row, "fwd", tile=OWN_TILE)
    answer = generated(aiter_tree, "fwd", own)
    (kernel,) = answer.kernels
    assert OWN_TILE in kernel.name
    assert dict(kernel.fields) == own.config.fields()
    assert "ck_tile::sequence<64, 64, 32, 64, 32, 64>" in answer.texts[kernel.file]
    variants = VariantFilter(
        0, "variant", 600, {n: (FORWARD[n],) for n in ("dtype", "mode")}, ((64, 64),)
    )
    wide = OWN_TILE.replace("b64x64x32x64", "b128x32x32x64")
    further = asked(row, "fwd", "there", hdim_q=72, hdim_v=72, tile=TILE_72)
    both = generated(aiter_tree, "fwd", asked(row, "fwd", tile=wide), further, filters=(variants,))
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
def test_own_tiles_over_a_cache(aiter_tree: Path, direction: str, tile: str, text: str) -> None:
    """Prevents: a direction that a manifest adds, whose kernels only have CK's tiles."""
    rows = seen(aiter_tree, direction).base.rows
    like = next(row for row in rows if row.main.fields["dtype"] == "fp16")
    own = asked(like, direction, hdim_q=64, hdim_v=64, tile=tile)
    answer = generated(aiter_tree, direction, own)
    (kernel,) = answer.kernels
    assert tile in kernel.name
    assert dict(kernel.fields) == own.config.fields()
    assert text in answer.texts[kernel.file]


TILE_72 = "b128x64x32x72x32x96_r4x1x1_r4x1x1_w32x32x16_w32x32x16"


def test_one_that_differs_in_waves_replaces_ck_s(aiter_tree: Path) -> None:
    """Prevents: two definitions of one type in C++, which the linker refuses."""
    row = first(aiter_tree, "fwd", **FORWARD)
    answer = generated(
        *(aiter_tree, "fwd"),
        *(asked(row, "fwd", tile=f"{row.main.fields['tile']}_o2"),),
        filters=(VariantFilter(0, "v", 600, {"lse": (True,)}, ((64, 64),)),),
        explain=True,
    )
    names = [kernel.name for kernel in answer.kernels]
    assert row.main.name not in names
    assert sum("_o2_" in name for name in names) == 1
    (reason,) = (e.dropped_by for e in answer.explanations if e.name == row.main.name)
    assert "same type in C++" in reason


@pytest.mark.thorough
def test_partners_come_along(aiter_tree: Path) -> None:
    """Prevents: a backward without its helper kernels."""
    fields: dict[str, FieldValue] = {"arch": "gfx950", "hdim_q": 64, "mode": "batch"}
    fields |= {"deterministic": True, "trload": False, "dpad": 8, "dvpad": 8}
    row = first(aiter_tree, "bwd", **fields)
    tile = str(row.main.fields["tile"]).replace("b32x128x", "b32x64x")
    answer = generated(aiter_tree, "bwd", asked(row, "bwd", tile=tile))
    roles = [kernel.role for kernel in answer.kernels]
    assert sorted(set(roles)) == ["convert_dq", "dot_do_o", "dq_dk_dv"]
    convert = next(kernel for kernel in answer.kernels if kernel.role == "convert_dq")
    # CK has none for 64 columns: it is made by the row.
    assert "b64x64_" in convert.name
    assert "fmha_bwd_convert_dq_traits_" in answer.texts[convert.file]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({"colour": 1}, {}, "colour, which they do not have"),
        ({"arch": "gfx1201"}, {}, "arch gfx1201, while CK has kernels for gfx950"),
        ({"tile": "b64x64"}, {}, "2 numbers after b, while CK's tile has 6"),
        ({"hdim_v": 96}, {}, "hdim_v 64 in place of 96"),
        ({"tile": OWN_TILE}, {"dropped": True}, "which is dropped"),
        ({"tile": OWN_TILE}, {"family": "fwd_splitkv_combine"}, "is a helper kernel"),
    ],
)
def test_what_cannot_be_made_says_why(
    aiter_tree: Path, changes: dict[str, FieldValue], more: dict[str, Any], said: str
) -> None:
    """Prevents: another kernel than the one that is asked for, without a word."""
    own = asked(first(aiter_tree, "fwd", **FORWARD), "fwd", "here", **changes)
    own = replace(own, config=replace(own.config, family=more.pop("family", "fwd")))
    answer = generated(aiter_tree, "fwd", own, **more)
    assert answer.kernels == ()
    (finding,) = answer.refused
    assert finding.place == "here"
    assert said in finding.found + finding.expected


def test_two_of_one_type(aiter_tree: Path) -> None:
    """Prevents: a manifest that links, and has one of two kernels that it names."""
    row = first(aiter_tree, "fwd", **FORWARD)
    tiles = OWN_TILE, f"{OWN_TILE}_o2"
    own = [asked(row, "fwd", label, tile=tile) for label, tile in zip("ab", tiles, strict=True)]
    answer = generated(aiter_tree, "fwd", *own)
    (finding,) = answer.refused
    assert (finding.place, "of the same type in C++ as a" in finding.found) == ("b", True)


@pytest.mark.thorough
def test_one_behind_another_is_told(aiter_tree: Path) -> None:
    """Prevents: a kernel that is asked for, and left out without a word."""
    fields: dict[str, FieldValue] = {"arch": "gfx950", "mode": "batch", "dtype": "bf16"}
    fields |= {"dpad": 8, "dvpad": 8, "mask": False, "bias": "no", "deterministic": False}
    rows = [first(aiter_tree, "bwd", hdim_q=hdim, **fields) for hdim in (64, 32)]
    both = [asked(row, "bwd", f"d{row.main.fields['hdim_q']}") for row in rows]
    answer = generated(aiter_tree, "bwd", *both)
    mains = [kernel for kernel in answer.kernels if kernel.role == "dq_dk_dv"]
    assert [dict(kernel.fields)["hdim_q"] for kernel in mains] == [64]
    (warning,) = [one for one in answer.findings if one.severity == "warning"]
    assert warning.place == "d32"
    assert "tests the 64x64 bucket before that of 32x32" in warning.found
