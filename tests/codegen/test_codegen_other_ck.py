"""The Composable Kernel of flash-attn 2.8.3.post2: an older version without --targets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.generate import generate
from qola.codegen.types import KernelSet, Selection
from qola.common.folder import Folder
from qola.manifest.load import loads
from tests.support.folders import write

FMHA = "3rdparty/composable_kernel/example/ck_tile/01_fmha"
VARIANT = (
    '[[modules]]\nname = "{}"\n[[mha_{}_variants]]\ndtype = "bf16"\nhdim = 128\n'
    "has_bias = false\nhas_alibi = false\nhas_dropout = false\n"
)
FWD = VARIANT.format("libmha_fwd", "fwd") + "has_lse = true\n"
BWD = VARIANT.format("libmha_bwd", "bwd") + "deterministic = false\n"


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


def run(tree: AiterTree, out: Path, module: str, manifest: str, receipt: int) -> KernelSet:
    parsed = loads(manifest, file="m.toml")
    variants = parsed.bwd_variants if module == "libmha_bwd" else parsed.fwd_variants
    selection = Selection(receipt, variants, level="filtered")
    return generate(tree, tree.module(module), selection, ("gfx942", "gfx950"), Folder(out))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("module", "manifest", "rows", "roles"),
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
    manifest: str,
    rows: dict[str, int],
    roles: dict[str, int],
) -> None:
    """Prevents: a CK with other signatures, fields and conditions refused or parsed wrongly."""
    result = run(tree, tmp_path, module, manifest, 600)
    assert {d.name: d.rows for d in result.directions} == rows
    assert {(d.level, d.unknown) for d in result.directions} == {("filtered", ())}
    assert Counter(kernel.role for kernel in result.kernels) == roles
    assert {kernel.archs for kernel in result.kernels} == {("gfx942", "gfx950")}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("module", "direction"), [("libmha_fwd", "fwd"), ("libmha_bwd", "bwd")])
def test_full_receipt_is_identical(
    tree: AiterTree, tmp_path: Path, module: str, direction: str
) -> None:
    """Prevents: a kernel or a dispatch that differs from the output of this CK's generate.py."""
    own = tmp_path / "own"
    own.mkdir()
    script = tree.root / FMHA / "generate.py"
    command = [sys.executable, "-B", "-W", "ignore", script, "-d", direction, "-r", "2", "-o", own]
    environ = {"PYTHONHASHSEED": "0"}
    subprocess.run([str(part) for part in command], check=True, env=environ)
    plain = f'[[modules]]\nname = "{module}"\n'
    run(tree, tmp_path / "out", module, plain, 2)
    written = [*(tmp_path / "out/kernels").iterdir(), *(tmp_path / "out/dispatch").iterdir()]
    found = {path.name: path.read_bytes() for path in written}
    expected = {path.name: path.read_bytes() for path in own.iterdir()}
    assert [name for name in expected if found.get(name) != expected[name]] == []
