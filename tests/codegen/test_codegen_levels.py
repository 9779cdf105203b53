"""The level that each direction of a Composable Kernel reaches, and the generated files."""

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
from qola.codegen.process import run_module
from qola.codegen.types import KernelSet
from qola_base.errors import CodegenError
from tests.codegen import generating
from tests.codegen.fake_ck import make_tree
from tests.codegen.generating import BOTH

NESTED = "3rdparty/libraries/projects/composablekernel"
VARIANT = (
    '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_mask = false\nhas_bias = false\n'
    "has_alibi = false\nhas_lse = true\n"
)


def run(
    tree: AiterTree, out: Path, tables: str = VARIANT, archs: Sequence[str] = BOTH, **more: Any
) -> KernelSet:
    return generating.run(tree, out, tables, archs=archs, explain=True, **more)


def write_wrong_byte_code(source: Path) -> None:
    """Write byte code that differs from its source, and that Python loads without a check."""
    text = source.read_text()
    source.write_text("raise SystemExit('planted')\n")
    py_compile.compile(str(source), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    source.write_text(text)


def test_byte_code_is_ignored(tmp_path: Path) -> None:
    """Prevents: a generator that runs code outside of its sources and of the tree's digest."""
    tree = make_tree(tmp_path / "tree")
    folder = tree.root / tree.fmha_dir
    write_wrong_byte_code(folder / "switches.py")
    plain = [sys.executable, "-B", str(folder / "generate.py"), "--help"]
    result = subprocess.run(plain, capture_output=True, text=True, check=False, env={})
    assert result.stderr == "planted\n"
    assert run(tree, tmp_path / "out").kernels
    # AITER's scripts and their child processes must ignore byte code, too.
    child = [sys.executable, "-c", f"import sys; sys.path += [{str(folder)!r}]; import switches"]
    (folder / "asm.py").write_text(
        f"import subprocess, switches\nsubprocess.run({child}, check=True)\n"
    )
    arguments = [str(tmp_path / "seen"), "--archs=gfx950", str(folder / "asm.py")]
    run_module("qola.codegen.asm.run_script", arguments, cwd=tmp_path, place="here")


def run_generate_py(tree: AiterTree, out: Path, receipt: int, targets: str) -> str:
    """Run the fake's generate.py without qola, and return the text of its dispatch."""
    folder = generating.run_generate_py(tree, out, "fwd", receipt, targets)
    return (folder / "fmha_fwd_api.cpp").read_text()


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("switches", "places", "archs", "count"),
    [
        (("TARGETS",), {}, 2, 4),
        ((), {}, 1, 2),
        (("TARGETS", "RENDER"), {}, 2, 4),
        (("TARGETS", "NEW_MASKS"), {}, 2, 4),
        (("TARGETS", "NEW_FIELD", "RENDER"), {}, 2, 8),
        (("TARGETS",), {"ck": NESTED}, 2, 4),
        (("TARGETS",), {"generator_dir": "tile/01_fmha"}, 2, 4),
        (("TARGETS", "KEYWORD"), {}, 2, 4),
        (("TARGETS", "ENUM"), {}, 2, 4),
        (("TARGETS", "RENAMED"), {}, 2, 4),
    ],
)
def test_variants_select_from_any_pool(
    tmp_path: Path, switches: tuple[str, ...], places: dict[str, str], archs: int, count: int
) -> None:
    """Prevents: kernels or a dispatch that differ from this CK's output for a variant."""
    tree = make_tree(tmp_path / "tree", *switches, **places)
    assert tree.has_ck
    result = run(tree, tmp_path / "out")
    (direction,) = result.directions
    assert (direction.level, direction.reason) == ("filtered", "")
    fields = 2 if "NEW_FIELD" in switches else 1
    assert direction.rows == len(result.explanations) == 64 * archs * fields
    assert len(result.kernels) == count
    # Receipt 7 of the fake is this variant.
    targets = ",".join(BOTH) if "TARGETS" in switches else ""
    expected_dispatch = run_generate_py(tree, tmp_path / "own", 7, targets)
    assert (tmp_path / "out/dispatch/fmha_fwd_api.cpp").read_text() == expected_dispatch
    written = {p.name: p.read_bytes() for p in (tmp_path / "own").glob("fmha_fwd_1*")}
    assert {p.name: p.read_bytes() for p in (tmp_path / "out/kernels").iterdir()} == written
    variant_fields = {
        "dtype": "bf16",
        "hdim_q": 128,
        "hdim_v": 128,
        "mask": False,
        "bias": "no",
        "lse": True,
    }
    assert all(variant_fields.items() <= dict(kernel.fields).items() for kernel in result.kernels)
    assert {dict(k.fields).get("layout") for k in result.kernels} == {
        "row" if "ENUM" in switches else None
    }
    by_arch = {kernel.archs for kernel in result.kernels}
    assert by_arch == ({(arch,) for arch in BOTH} if archs > 1 else {BOTH})
    assert direction.unknown == (("paged_v",) if "NEW_FIELD" in switches else ())
    warnings = [w.found for w in result.warnings]
    if "NEW_FIELD" in switches:
        (warning,) = warnings
        assert "kernels differ in paged_v, which no variant can name" in warning
    else:
        assert warnings == []


def test_causal_masks_match_has_mask(tmp_path: Path) -> None:
    """Prevents: causal kernels omitted if a CK names its masks differently."""
    tree = make_tree(tmp_path / "tree", "TARGETS", "NEW_MASKS")
    masked = run(tree, tmp_path / "out", VARIANT.replace("has_mask = false", "has_mask = true"))
    assert len(masked.kernels) == 4
    assert all("causal" in kernel.name for kernel in masked.kernels)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("switches", "level", "reason"),
    [
        (("TARGETS", "NO_POOL"), "linked", "0 classes *ApiPool render a dispatch, not one"),
        (("TARGETS", "REWRITTEN"), "linked", "the texts of the pool are in 0 files, not in one"),
        (("TARGETS", "NAMELESS"), "linked", "AttributeError: 'Tile' object has no attribute"),
        (("TARGETS", "NEEDS_ROWS"), "linked", "ValueError: no rows"),
        (("NO_POOL", "NO_TRAITS"), "opaque", "defines 0 types of kernels, not one"),
        (("TARGETS", "NO_TRAITS"), "opaque", "defines 0 types of kernels, not one"),
    ],
)
def test_lower_levels_build_the_whole_receipt(
    tmp_path: Path, switches: tuple[str, ...], level: str, reason: str
) -> None:
    """Prevents: a CK that is refused because it cannot be parsed, or filtered without a check."""
    tree = make_tree(tmp_path / "tree", *switches)
    result = run(tree, tmp_path / "out")
    (direction,) = result.directions
    assert direction.level == level
    assert reason in direction.reason
    archs = 2 if "TARGETS" in switches else 1
    assert len(result.kernels) == 64 * archs
    assert all(kernel.variants == () for kernel in result.kernels)
    if level == "linked":
        assert {kernel.archs for kernel in result.kernels} == {(arch,) for arch in BOTH}
    (warning,) = result.warnings
    assert warning.severity == "warning"
    assert (
        f"level {level}: all of receipt 600 is built, whatever m.toml:3 [[mha_fwd" in warning.found
    )
    for target_archs in (BOTH, *((arch,) for arch in BOTH)):
        targets = ",".join(target_archs) if "TARGETS" in switches else ""
        own = tmp_path / "-".join(target_archs)
        expected_dispatch = run_generate_py(tree, own, 600, targets)
        folder = "dispatch" if target_archs == BOTH else f"dispatch_{target_archs[0]}"
        assert (tmp_path / f"out/{folder}/fmha_fwd_api.cpp").read_text() == expected_dispatch
    with pytest.raises(CodegenError, match="required level is not reached") as error:
        run(tree, tmp_path / "again", level="filtered")
    assert f"level {level}: " in str(error.value)


@pytest.mark.parametrize("switches", [("TARGETS",), ("TARGETS", "NO_POOL")])
def test_drop_directions(tmp_path: Path, switches: tuple[str, ...]) -> None:
    """Prevents: kernels of a dropped direction, or a link error for its dispatch function."""
    tree = make_tree(tmp_path / "tree", *switches)
    result = run(tree, tmp_path / "out", "", drop=["fwd"])
    assert result.kernels == ()
    reasons = {e.dropped_by for e in result.explanations}
    assert reasons == ({"the direction is dropped"} if "NO_POOL" not in switches else set())
    assert "(void)t;" in (tmp_path / "out/dispatch/fmha_fwd_api.cpp").read_text()


@pytest.mark.parametrize(
    ("switches", "more", "parts"),
    [
        (
            ("TARGETS",),
            {"receipt": 700, "tables": ""},
            [
                "rule of receipt 700 for direction fwd",
                "vlayout row, but no kernel has the field vlayout",
            ],
        ),
        (
            ("TARGETS",),
            {"tables": VARIANT + 'mode = "batch"\nhas_dropout = true\n'},
            ["selects no kernel", "dropout: wanted yes, there is only no"],
        ),
        (
            ("TARGETS", "NEW_FIELD"),
            {"tables": VARIANT + "has_sink = true\n"},
            [
                "m.toml:3 [[mha_fwd_variants]].sink",
                "sink yes, but no kernel has the field sink",
                "fields that this qola does not know: paged_v",
            ],
        ),
        (
            ("TARGETS", "NO_POOL"),
            {"receipt": 700, "tables": ""},
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
def test_unknown_fields_are_errors(
    tmp_path: Path, switches: tuple[str, ...], more: dict[str, Any], parts: list[str]
) -> None:
    """Prevents: all kernels selected because this CK does not have the field of a rule."""
    tree = make_tree(tmp_path / "tree", *switches)
    with pytest.raises(CodegenError) as error:
        run(tree, tmp_path / "out", **more)
    for part in parts:
        assert part in str(error.value)


def test_generator_of_another_ck_is_refused(tmp_path: Path) -> None:
    """Prevents: kernels of one Composable Kernel compiled with headers of another."""
    entry_ck_dir = "{AITER_META_DIR}/3rdparty/composable_kernel"
    tree = make_tree(tmp_path / "tree", "TARGETS", entry_ck_dir=entry_ck_dir)
    assert run(tree, tmp_path / "out").kernels
    core = tree.root / "aiter/jit/core.py"
    core.write_text('CK_DIR = f"{AITER_META_DIR}/3rdparty/second"')
    with pytest.raises(CodegenError, match="composable_kernel/example") as error:
        run(read_tree(tree.root), tmp_path / "out")
    assert "3rdparty/second/example/ck_tile/01_fmha/generate.py" in str(error.value)


def test_receipts_of_a_single_file_generator(tmp_path: Path) -> None:
    """Prevents: every receipt refused if CK's generator has no op modules."""
    assert known_receipts(make_tree(tmp_path), "libmha_fwd") == (0, 7, 600, 700)


def test_ck_with_receipt_700_overrides_qolas_rules(tmp_path: Path) -> None:
    """Prevents: qola's rules for receipt 700 used although this CK has its own rules."""
    tree = make_tree(tmp_path / "tree", "TARGETS")
    script = tree.root / tree.fmha_dir / "generate.py"
    script.write_text(script.read_text().replace("receipt == 600", "receipt in (600, 700)"))
    assert len(run(tree, tmp_path / "out", "", receipt=700).kernels) == 128
