"""The Composable Kernel of flash-attn 2.8.3.post2: an older version without --targets."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from tests.codegen.generating import BOTH, read_files, roles, run, run_generate_py
from tests.support.folders import write

FMHA = "3rdparty/composable_kernel/example/ck_tile/01_fmha"
VARIANT = (
    '[[mha_{}_variants]]\ndtype = "bf16"\nhdim = 128\n'
    "has_bias = false\nhas_alibi = false\nhas_dropout = false\n"
)
FWD = VARIANT.format("fwd") + "has_lse = true\n"
BWD = VARIANT.format("bwd") + "deterministic = false\n"


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> AiterTree:
    """Return an AITER tree with the Composable Kernel of flash-attn."""
    value = os.environ.get("QOLA_TEST_FLASH_ATTN_CK")
    if not value:
        pytest.skip("needs flash-attn's Composable Kernel: set QOLA_TEST_FLASH_ATTN_CK")
    root = tmp_path_factory.mktemp("aiter")
    call = "f'{{CK_DIR}}/example/ck_tile/01_fmha/generate.py -d {} -r 600 --output_dir {{{{}}}}'"
    srcs = ["f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'"]
    directions = {"libmha_fwd": ("fwd", "fwd_splitkv", "batch_prefill"), "libmha_bwd": ("bwd",)}
    config = {
        name: {"srcs": srcs, "blob_gen_cmd": [call.format(d) for d in names]}
        for name, names in directions.items()
    }
    files = {
        "aiter/jit/optCompilerConfig.json": json.dumps(config),
        "csrc/include/mha_fwd.h": "",
        "csrc/cpp_itfs/mha_fwd.cu": "",
    }
    write(root, files)
    shutil.copytree(Path(value).resolve().parent, root / FMHA)
    return read_tree(root)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "tables", "rows", "expected"),
    [
        (
            "libmha_fwd",
            FWD,
            {"fwd": 2496, "fwd_splitkv": 960, "batch_prefill": 128},
            # Counted by names of the files that this CK writes, such as *_d128_bf16_*_nbias_*.
            {"fwd": 24, "splitkv": 48, "splitkv_combine": 10, "batch_prefill": 8},
        ),
        ("libmha_bwd", BWD, {"bwd": 10752}, {"dq_dk_dv": 40, "dot_do_o": 6, "convert_dq": 6}),
    ],
)
def test_variants_select_kernels(
    tree: AiterTree,
    tmp_path: Path,
    module: str,
    tables: str,
    rows: dict[str, int],
    expected: dict[str, int],
) -> None:
    """Prevents: a CK with other signatures, fields and conditions refused or parsed wrongly."""
    result = run(tree, tmp_path, tables, module, BOTH, receipt=600, level="filtered")
    assert {d.name: d.rows for d in result.directions} == rows
    assert {(d.level, d.unknown) for d in result.directions} == {("filtered", ())}
    assert roles(result) == expected
    assert {kernel.archs for kernel in result.kernels} == {BOTH}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("module", "direction"), [("libmha_fwd", "fwd"), ("libmha_bwd", "bwd")])
def test_full_receipt_is_identical(
    tree: AiterTree, tmp_path: Path, module: str, direction: str
) -> None:
    """Prevents: a kernel or a dispatch that differs from the output of this CK's generate.py."""
    expected = read_files(run_generate_py(tree, tmp_path / "own", direction, 2))
    run(tree, tmp_path / "out", module=module, archs=BOTH, receipt=2, level="filtered")
    found = read_files(tmp_path / "out/kernels") | read_files(tmp_path / "out/dispatch")
    assert [name for name in expected if found.get(name) != expected[name]] == []
