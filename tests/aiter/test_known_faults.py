"""Known faults of AITER that only a patch corrects: reported only for affected trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.known_faults import known_faults
from qola.aiter.tree import AiterTree, ModuleConfig, read_tree
from tests.support.folders import write
from tests.support.later_tree import write_later_tree

BWD = "csrc/cpp_itfs/mha_bwd.cu"
TABLE = "hsa/gfx1250/fmha_v3_bwd/fmha_bwd_dqdkdv.csv"
HEADER = "dtype,hdim_q,hdim_v,mask,knl_name,co_name\n"
#: Source text by patch: before and after the patch.
SOURCES = {
    "0004-gfx1250-causal-mask-remap.patch": (
        'if(arch_id == "gfx1250") {}',
        'if(arch_id == "gfx1250" && mt == 1 && a.seqlen_q == a.seqlen_k) {}',
    ),
    "0005-bwd-ondevice-workspace-prepare.patch": (
        'AITER_LOG_ERROR("mha_bwd: group mode requires pinned_host_alloc callback");',
        "",
    ),
    "0006-bwd-group-det-zero-ws.patch": (
        "a.workspace_alloc(launcher.workspace_size, /*zero_init=*/false);",
        "a.workspace_alloc(launcher.workspace_size, /*zero_init=*/zero_ws);",
    ),
    "0007-mha-bwd-v3-api-check-dry-run.patch": (
        "if(asm_ret != -1)\n    return asm_ret;\nlauncher();\nif(a.v3_api_check) return 1;",
        "if(asm_ret != -1)\n    return asm_ret;\n\n    if(a.v3_api_check)\n        return -1;",
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    table = f"{HEADER}bf16,128,128,0,a,b\nbf16,128,128,2,a,b\n"
    return read_tree(write(write_later_tree(tmp_path), {TABLE: table}))


def missing_patches(
    tree: AiterTree,
    *flags: str,
    archs: Sequence[str] = ("gfx1250",),
    variants: Sequence[Mapping[str, Any]] = (),
    module: str = "libmha_bwd",
) -> list[str]:
    """Return the names of the patches that the tree lacks."""
    config = ModuleConfig(module, flags_hip=flags)
    found = list(known_faults(tree, config, archs, variants))
    assert all(finding.severity == "warning" for finding in found)
    return [finding.expected.partition("patch ")[2].partition(",")[0] for finding in found]


@pytest.mark.parametrize("patch", SOURCES)
def test_fault_is_reported_until_corrected(tree: AiterTree, patch: str) -> None:
    """Prevents: no warning for a fault that gives wrong gradients, or a warning once corrected."""
    before, after = SOURCES[patch]
    (tree.root / BWD).write_text(f"// 1\n{before}\n")
    assert missing_patches(tree) == [patch]
    (finding,) = known_faults(tree, ModuleConfig("libmha_bwd"), ["gfx1250"])
    assert finding.place == f"{BWD}:2"
    assert finding.fix.startswith("patches_dir = ")
    (tree.root / BWD).write_text(after)
    assert missing_patches(tree) == []


def test_second_form_of_the_probe(tree: AiterTree) -> None:
    """Prevents: qola misses this fault in AITER of March 2026, whose source text differs."""
    text = "if(asm_ret == -1)\n{\n    return fmha_bwd();\n}\nreturn asm_ret;\n// v3_api_check"
    (tree.root / BWD).write_text(text)
    assert missing_patches(tree) == ["0007-mha-bwd-v3-api-check-dry-run.patch"]


def test_faults_depend_on_flags_archs_and_variants(tree: AiterTree) -> None:
    """Prevents: warnings about faults in code that the library does not contain."""
    (tree.root / BWD).write_text("\n".join(before for before, _ in SOURCES.values()))
    assert missing_patches(tree) == list(SOURCES)
    assert missing_patches(tree, module="libmha_fwd") == []
    assert missing_patches(tree, "-DENABLE_CK=0") == ["0004-gfx1250-causal-mask-remap.patch"]
    assert missing_patches(tree, "-DENABLE_CK=0", archs=["gfx942"]) == []
    zero = "0006-bwd-group-det-zero-ws.patch"
    batch = {"deterministic": (False, True), "mode": ("batch",)}
    atomic = {"deterministic": (False,), "mode": ("batch", "group")}
    assert zero not in missing_patches(tree, variants=[batch, atomic])
    both = {"deterministic": (False, True), "mode": ("batch", "group")}
    assert zero in missing_patches(tree, variants=[batch, both])


def test_table_with_the_kernel_needs_no_remap(tree: AiterTree) -> None:
    """Prevents: a warning for a tree that already contains the kernel."""
    (tree.root / BWD).write_text(SOURCES["0004-gfx1250-causal-mask-remap.patch"][0])
    (tree.root / TABLE).write_text(f"{HEADER}bf16,128,128,1,a,b\n")
    assert missing_patches(tree) == []
    (tree.root / TABLE).unlink()
    assert missing_patches(tree) == []


def test_wheel_has_no_known_faults(aiter_tree: Path) -> None:
    """Prevents: false warnings for the pinned AITER wheel."""
    wheel = read_tree(aiter_tree)
    assert missing_patches(wheel, archs=["gfx942", "gfx950"]) == []
