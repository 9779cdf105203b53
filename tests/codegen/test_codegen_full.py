"""Kernel generation on the real tree, for whole receipts: equality with CK's output, counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.tree import AiterTree, read_tree
from tests.codegen.generating import BOTH, read_files, roles, run, run_generate_py

BACKWARD = """
[[mha_bwd_variants]]
dtype = "fp16"
mode = "batch"
has_mask = false
has_bias = false
has_alibi = false
has_dbias = false
has_dropout = false
deterministic = false
"""


@pytest.fixture(scope="session")
def tree(aiter_tree: Path) -> AiterTree:
    return read_tree(aiter_tree)


@pytest.mark.parametrize(
    ("module", "receipt", "archs", "targets"),
    [
        # "gfx9,gfx950" is generate.py's default, which AITER uses.
        ("libmha_fwd", 600, BOTH, "gfx9,gfx950"),
        ("libmha_fwd", 100, ("gfx942",), "gfx9"),
        ("libmha_fwd", 2, ("gfx950",), "gfx950"),
        ("libmha_bwd", 2, ("gfx950",), "gfx950"),
        ("libmha_bwd", 801, BOTH, "gfx9,gfx950"),
    ],
)
def test_full_receipt_is_identical_to_ck(
    tree: AiterTree, tmp_path: Path, module: str, receipt: int, archs: tuple[str, ...], targets: str
) -> None:
    """Prevents: a kernel or a dispatch that differs from the files that AITER compiles."""
    forward = module == "libmha_fwd"
    directions = ("fwd", "fwd_splitkv", "batch_prefill") if forward else ("bwd",)
    expected: dict[str, bytes] = {}
    for direction in directions:
        expected |= read_files(
            run_generate_py(tree, tmp_path / direction, direction, receipt, targets)
        )
    out = tmp_path / "out"
    kernels = run(tree, out, module=module, receipt=receipt, archs=archs, keep_unreachable=True)
    found = {**read_files(tmp_path / "out/kernels"), **read_files(tmp_path / "out/dispatch")}
    del found["mha_fwd.cpp" if forward else "mha_bwd.cpp"]
    assert sorted(found) == sorted(expected)
    assert [name for name, data in expected.items() if found[name] != data] == []
    assert len(kernels.kernels) + len(directions) == len(expected)


@pytest.mark.parametrize(
    ("module", "archs", "expected"),
    [
        ("libmha_fwd", ("gfx942",), {"fwd": 492}),
        ("libmha_fwd", ("gfx950",), {"fwd": 528}),
        ("libmha_fwd", BOTH, {"fwd": 1020}),
        # Without unreachable kernels: gfx950's buckets 32 and 96 follow 64 and 128 (1,864 kernels),
        # and rows with gfx942's tiles follow gfx950's rows (384 kernels).
        ("libmha_bwd", ("gfx942",), {"dq_dk_dv": 4480, "dot_do_o": 60, "convert_dq": 120}),
        ("libmha_bwd", ("gfx950",), {"dq_dk_dv": 3200, "dot_do_o": 36, "convert_dq": 84}),
    ],
)
def test_receipt_700(
    tree: AiterTree, tmp_path: Path, module: str, archs: tuple[str, ...], expected: dict[str, int]
) -> None:
    """Prevents: TransformerEngine's kernel set with missing or unreachable kernels."""
    kernels = run(tree, tmp_path, module=module, receipt=700, archs=archs)
    assert roles(kernels) == expected
    directions = ("bwd",) if module == "libmha_bwd" else ("fwd", "fwd_splitkv", "batch_prefill")
    assert [source.name for source in kernels.sources if source.archs == archs] == [
        *(f"fmha_{direction}_api.cpp" for direction in directions),
        f"{module.removeprefix('lib')}.cpp",
    ]
    # The other directions have no kernels, and a dispatch that only returns -1.
    for direction in directions[1:]:
        text = (tmp_path / f"dispatch/fmha_{direction}_api.cpp").read_text()
        assert "(void)t; (void)s; (void)a;" in text
        assert "if(t." not in text


def read_buckets(dispatch: Path) -> dict[tuple[int, int], str]:
    """Return the rows of each head dim bucket in a dispatch of one arch and dtype."""
    head = r"if\(t\.hdim_q <= (\d+) && t\.hdim_v <= (\d+)\)"
    _, *parts = re.split(head, dispatch.read_text())
    # Braces and -1 follow the last bucket.
    texts = [re.sub(r"\s*else $", "", part).partition("\n            }")[0] for part in parts[2::3]]
    return {(int(q), int(v)): t for q, v, t in zip(parts[::3], parts[1::3], texts, strict=True)}


def test_unreachable_kernels_are_omitted(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: unreachable kernels in a library, or a problem that another kernel runs."""
    request: dict[str, Any] = {"tables": BACKWARD, "module": "libmha_bwd", "receipt": 700}
    complete = run(tree, tmp_path / "all", keep_unreachable=True, **request)
    reached = run(tree, tmp_path / "some", explain=True, **request)
    before = read_buckets(tmp_path / "all/dispatch/fmha_bwd_api.cpp")
    after = read_buckets(tmp_path / "some/dispatch/fmha_bwd_api.cpp")
    assert list(before) == [(64, 64), (128, 128), (32, 32), (96, 96), (256, 256)]
    assert list(after) == [(64, 64), (128, 128), (256, 256)]
    for bucket, text in after.items():
        rows, left = (re.split(r"\bif\(\(", part) for part in (before[bucket], text))
        assert [row.strip() for row in left if row not in rows] == []
    gone = {k.name for k in complete.kernels} - {k.name for k in reached.kernels}
    reasons = {e.dropped_by for e in reached.explanations if e.name in gone}
    row = "unreachable: rows before it in the dispatch take all its problems: "
    bucket_ = "unreachable: the dispatch tests the {} bucket before that of {}, and it takes all"
    starts = (row, bucket_.format("64x64", "32x32"), bucket_.format("128x128", "96x96"))
    for start in starts:
        assert any(reason.startswith(start) for reason in reasons)
    assert all(reason.startswith(starts) for reason in reasons)
    assert [w.fix for w in complete.warnings if "unreachable" in w.found] == [
        "leave keep_unreachable out of [build]"
    ] * 3
    assert reached.warnings == ()


def test_single_arch_library_has_its_dispatch(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a single-arch library whose dispatch calls kernels of another arch."""
    for module in ("libmha_fwd", "libmha_bwd"):
        run(tree, tmp_path / module, module=module, receipt=700, archs=BOTH)
        for arch in BOTH:
            run(tree, tmp_path / module / arch, module=module, receipt=700, archs=(arch,))
            single = read_files(tmp_path / module / arch / "dispatch")
            assert read_files(tmp_path / module / f"dispatch_{arch}") == single


def test_entry_calls_v3_of_the_device_arch(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: gfx942's assembly kernels launched on gfx950, or a missing dispatch of an arch."""
    variant = '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = [{}]\nhas_mask = false\n'
    calls = {
        # Both archs have v3 kernels: the entry calls the dispatch of the device's arch.
        "128": {"": {"gfx942", "gfx950"}, "_gfx942": {"gfx942"}, "_gfx950": {"gfx950"}},
        # Only gfx950 has v3 kernels: the library for both archs must check the device's arch.
        "[192, 128]": {"": {"gfx950"}, "_gfx942": set(), "_gfx950": {"gfx950"}},
    }
    for hdim, folders in calls.items():
        out = tmp_path / hdim
        text = variant.format(hdim) + "has_bias = false\nhas_dropout = false\n"
        kernels = run(tree, out, text, receipt=700, archs=BOTH, asm=True)
        for folder, archs in folders.items():
            entry = (out / f"dispatch{folder}/mha_fwd.cpp").read_text()
            assert set(re.findall(r"(gfx\d+)::fmha_fwd_v3", entry)) == archs
            assert ("get_gpu_arch()" in entry) == (folder == "")
            entry_archs = BOTH if not folder else (folder[1:],)
            linked = {s.name for s in kernels.sources if s.role == "asm" and s.archs == entry_archs}
            assert linked == {f"asm_fmha_fwd_v3_{arch}.cpp" for arch in archs}
        assert {c.arch for c in kernels.code_objects} == folders[""]


@pytest.mark.parametrize(
    ("module", "hdim", "archs"),
    [("libmha_fwd", "[192, 128]", ("gfx950",)), ("libmha_bwd", "64", BOTH)],
)
def test_assembly_kernels_without_ck_kernels(
    tree: AiterTree, tmp_path: Path, module: str, hdim: str, archs: tuple[str, ...]
) -> None:
    """Prevents: a refused variant although assembly kernels serve it on every arch."""
    fwd = ("fwd", "fwd_splitkv", "batch_prefill")
    drop = fwd if module == "libmha_fwd" else ("bwd",)
    text = f'[[mha_{module[-3:]}_variants]]\ndtype = "bf16"\nhdim = [{hdim}]\n'
    kernels = run(tree, tmp_path, text, module, archs, drop=drop, asm=True)
    assert {code_object.arch for code_object in kernels.code_objects} == set(archs)
    assert all(role.startswith("asm_") for role in roles(kernels))
