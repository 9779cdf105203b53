"""The level of each direction of different Composable Kernels, and the generated files."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.ck.receipts import known_receipts
from qola.codegen.generate import generate
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet, Selection
from qola.errors import CodegenError
from qola.folder import Folder
from qola.manifest.load import loads
from tests.codegen.fake_ck import make_tree

NESTED = "3rdparty/libraries/projects/composablekernel"
BOTH = ("gfx942", "gfx950")
VARIANT = (
    '[[modules]]\nname = "libmha_fwd"\n[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\n'
    "has_mask = false\nhas_bias = false\nhas_alibi = false\nhas_lse = true\n"
)


def run(
    tree: AiterTree, out: Path, manifest: str = VARIANT, archs: Sequence[str] = BOTH, **more: Any
) -> KernelSet:
    variants = loads(manifest, file="m.toml").fwd_variants if manifest else ()
    selection = Selection(variants=variants, **more)
    return generate(tree, tree.module("libmha_fwd"), selection, archs, Folder(out), explain=True)


def plant_byte_code(source: Path) -> None:
    """Write byte code that does not match its source, and that Python loads unchecked."""
    text = source.read_text()
    source.write_text("raise SystemExit('planted')\n")
    py_compile.compile(str(source), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    source.write_text(text)


def test_byte_code_is_not_read(tmp_path: Path) -> None:
    """Prevents: generators that run code which is in no source and no digest of the tree."""
    tree = make_tree(tmp_path / "tree")
    folder = tree.root / tree.fmha_dir
    plant_byte_code(folder / "switches.py")
    plain = [sys.executable, "-B", str(folder / "generate.py"), "--help"]
    result = subprocess.run(plain, capture_output=True, text=True, check=False, env={})
    assert result.stderr == "planted\n"
    assert run(tree, tmp_path / "out").kernels
    # The same for AITER's scripts, and the programs that they start.
    child = [sys.executable, "-c", f"import sys; sys.path += [{str(folder)!r}]; import switches"]
    (folder / "asm.py").write_text(
        f"import subprocess, switches\nsubprocess.run({child}, check=True)\n"
    )
    arguments = [str(tmp_path / "seen"), "--archs=gfx950", str(folder / "asm.py")]
    run_module("qola.codegen.asm.run_script", arguments, cwd=tmp_path, place="here")


def own_dispatch(tree: AiterTree, out: Path, *arguments: str) -> str:
    """What the generator writes by itself."""
    out.mkdir()
    script = tree.root / tree.fmha_dir / "generate.py"
    subprocess.run(
        [sys.executable, "-B", script, "-d", "fwd", *arguments, "-o", out],
        check=True,
        env={"PYTHONHASHSEED": "0"},
    )
    return (out / "fmha_fwd_api.cpp").read_text()


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("on", "places", "archs", "kept"),
    [
        (("TARGETS",), {}, 2, 4),
        ((), {}, 1, 2),
        (("TARGETS", "RENDER"), {}, 2, 4),
        (("TARGETS", "NEW_MASKS"), {}, 2, 4),
        (("TARGETS", "NEW_FIELD", "RENDER"), {}, 2, 8),
        (("TARGETS",), {"ck": NESTED}, 2, 4),
        (("TARGETS",), {"own": "tile/01_fmha"}, 2, 4),
        (("TARGETS", "KEYWORD"), {}, 2, 4),
        (("TARGETS", "ENUM"), {}, 2, 4),
        (("TARGETS", "RENAMED"), {}, 2, 4),
    ],
)
def test_variants_select_from_any_pool(
    tmp_path: Path, on: tuple[str, ...], places: dict[str, str], archs: int, kept: int
) -> None:
    """Prevents: kernels or a dispatch that differ from those of this CK for a variant."""
    tree = make_tree(tmp_path / "tree", *on, **places)
    assert tree.has_ck
    found = run(tree, tmp_path / "out")
    (direction,) = found.directions
    assert (direction.level, direction.reason) == ("filtered", "")
    fields = 2 if "NEW_FIELD" in on else 1
    assert direction.rows == len(found.explanations) == 64 * archs * fields
    assert len(found.kernels) == kept
    # Receipt 7 of the fake is this variant.
    targets = ["--targets", ",".join(BOTH)] if "TARGETS" in on else []
    own = own_dispatch(tree, tmp_path / "own", "--receipt", "7", *targets)
    assert (tmp_path / "out/dispatch/fmha_fwd_api.cpp").read_text() == own
    written = {p.name: p.read_bytes() for p in (tmp_path / "own").glob("fmha_fwd_1*")}
    assert {p.name: p.read_bytes() for p in (tmp_path / "out/kernels").iterdir()} == written
    one = {"dtype": "bf16", "hdim_q": 128, "hdim_v": 128, "mask": False, "bias": "no", "lse": True}
    assert all(one.items() <= dict(kernel.fields).items() for kernel in found.kernels)
    assert {dict(k.fields).get("layout") for k in found.kernels} == {
        "row" if "ENUM" in on else None
    }
    by_arch = {kernel.archs for kernel in found.kernels}
    assert by_arch == ({(arch,) for arch in BOTH} if archs > 1 else {BOTH})
    assert direction.unknown == (("paged_v",) if "NEW_FIELD" in on else ())
    warnings = [w.found for w in found.warnings]
    if "NEW_FIELD" in on:
        (warning,) = warnings
        assert "kernels differ in paged_v, which no variant can name" in warning
    else:
        assert warnings == []


def test_a_causal_mask_is_one(tmp_path: Path) -> None:
    """Prevents: masks of a CK with other words for them lost to variants that ask for a mask."""
    tree = make_tree(tmp_path / "tree", "TARGETS", "NEW_MASKS")
    masked = run(tree, tmp_path / "out", VARIANT.replace("has_mask = false", "has_mask = true"))
    assert len(masked.kernels) == 4
    assert all("causal" in kernel.name for kernel in masked.kernels)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("on", "level", "reason"),
    [
        (("TARGETS", "NO_POOL"), "linked", "0 classes *ApiPool render a dispatch, not one"),
        (("TARGETS", "REWRITTEN"), "linked", "the texts of the pool are in 0 files, not in one"),
        (("TARGETS", "NAMELESS"), "linked", "AttributeError: 'Tile' object has no attribute"),
        (("TARGETS", "NEEDS_ROWS"), "linked", "ValueError: no rows"),
        (("NO_POOL", "NO_TRAITS"), "opaque", "defines 0 types of kernels, not one"),
        (("TARGETS", "NO_TRAITS"), "opaque", "defines 0 types of kernels, not one"),
    ],
)
def test_a_step_down_builds_all_of_the_receipt(
    tmp_path: Path, on: tuple[str, ...], level: str, reason: str
) -> None:
    """Prevents: a CK that cannot be followed refused, or its variants believed."""
    tree = make_tree(tmp_path / "tree", *on)
    found = run(tree, tmp_path / "out")
    (direction,) = found.directions
    assert direction.level == level
    assert reason in direction.reason
    archs = 2 if "TARGETS" in on else 1
    assert len(found.kernels) == 64 * archs
    assert all(kernel.variants == () for kernel in found.kernels)
    if level == "linked":
        assert {kernel.archs for kernel in found.kernels} == {(arch,) for arch in BOTH}
    (warning,) = found.warnings
    assert warning.severity == "warning"
    assert f"level {level}: all of receipt 600 is built, whatever [[mha_fwd" in warning.found
    for chosen in (BOTH, *((arch,) for arch in BOTH)):
        targets = ["--targets", ",".join(chosen)] if "TARGETS" in on else []
        own = own_dispatch(tree, tmp_path / "-".join(chosen), "--receipt", "600", *targets)
        folder = "dispatch" if chosen == BOTH else f"dispatch_{chosen[0]}"
        assert (tmp_path / f"out/{folder}/fmha_fwd_api.cpp").read_text() == own
    with pytest.raises(CodegenError, match="required level is not reached") as error:
        run(tree, tmp_path / "again", level="filtered")
    assert f"level {level}: " in str(error.value)


@pytest.mark.parametrize("on", [("TARGETS",), ("TARGETS", "NO_POOL")])
def test_a_direction_can_be_dropped(tmp_path: Path, on: tuple[str, ...]) -> None:
    """Prevents: an undefined symbol, or kernels, for a direction that is left out."""
    tree = make_tree(tmp_path / "tree", *on)
    found = run(tree, tmp_path / "out", "", drop_directions=frozenset({"fwd"}))
    assert found.kernels == ()
    reasons = {e.dropped_by for e in found.explanations}
    assert reasons == ({"the direction is dropped"} if "NO_POOL" not in on else set())
    assert "(void)t;" in (tmp_path / "out/dispatch/fmha_fwd_api.cpp").read_text()


@pytest.mark.parametrize(
    ("on", "more", "parts"),
    [
        (
            ("TARGETS",),
            {"receipt": 700, "manifest": ""},
            [
                "rule of receipt 700 for direction fwd",
                "vlayout row, but no kernel has the field vlayout",
            ],
        ),
        (
            ("TARGETS",),
            {"manifest": VARIANT + 'mode = "batch"\nhas_dropout = true\n'},
            ["selects no kernel", "dropout: wanted yes, there is only no"],
        ),
        (
            ("TARGETS", "NEW_FIELD"),
            {"manifest": VARIANT + "has_sink = true\n"},
            [
                "[[mha_fwd_variants]] #1 (line 3).sink",
                "sink yes, but no kernel has the field sink",
                "fields that this qola does not know: paged_v",
            ],
        ),
        (
            ("TARGETS", "NO_POOL"),
            {"receipt": 700, "manifest": ""},
            ["receipt 700 of a dispatch that cannot be parsed", "of this CK's own: 0, 7, 600"],
        ),
        (("TARGETS",), {"archs": ("gfx1100",)}, ["gfx1100"]),
        (
            ("TARGETS", "SILENT"),
            {"archs": ("gfx942", "gfx1100")},
            ["architecture gfx1100: no kernel of receipt 600, while gfx9 have some"],
        ),
    ],
)
def test_what_cannot_be_told_apart_is_an_error(
    tmp_path: Path, on: tuple[str, ...], more: dict[str, Any], parts: list[str]
) -> None:
    """Prevents: a rule on a field that this CK calls otherwise, which would keep everything."""
    tree = make_tree(tmp_path / "tree", *on)
    with pytest.raises(CodegenError) as error:
        run(tree, tmp_path / "out", **more)
    for part in parts:
        assert part in str(error.value)


def test_a_generator_of_another_ck_is_refused(tmp_path: Path) -> None:
    """Prevents: kernels of one Composable Kernel compiled with headers of another."""
    named = "{AITER_META_DIR}/3rdparty/composable_kernel"
    tree = make_tree(tmp_path / "tree", "TARGETS", named=named)
    assert run(tree, tmp_path / "out").kernels
    core = tree.root / "aiter/jit/core.py"
    core.write_text('CK_DIR = f"{AITER_META_DIR}/3rdparty/second"')
    with pytest.raises(CodegenError, match="composable_kernel/example") as error:
        run(read_tree(tree.root), tmp_path / "out")
    assert "3rdparty/second/example/ck_tile/01_fmha/generate.py" in str(error.value)


def test_receipts_of_a_generator_in_one_file(tmp_path: Path) -> None:
    """Prevents: every receipt refused where CK has no op modules."""
    assert known_receipts(make_tree(tmp_path), "libmha_fwd") == (0, 7, 600, 700)


def test_a_ck_that_knows_700_is_asked(tmp_path: Path) -> None:
    """Prevents: our rules for receipt 700 put in front of CK's own, once it has them."""
    tree = make_tree(tmp_path / "tree", "TARGETS")
    script = tree.root / tree.fmha_dir / "generate.py"
    script.write_text(script.read_text().replace("receipt == 600", "receipt in (600, 700)"))
    assert len(run(tree, tmp_path / "out", "", receipt=700).kernels) == 128
