"""Helpers that generate kernels from the real AITER tree."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qola.aiter.tree import AiterTree
from qola.codegen.generate import generate
from qola.codegen.types import KernelSet, Selection
from qola.common.folder import Folder
from qola.manifest.load import loads

BOTH = ("gfx942", "gfx950")
HEADER = '[[modules]]\nname = "libmha_fwd"\n'
QUICKSTART = (
    HEADER + '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_bias = false\n'
    "has_alibi = false\nhas_dropout = false\nhas_lse = true\n"
)


def run(
    tree: AiterTree,
    out: Path,
    manifest: str = "",
    module: str = "libmha_fwd",
    archs: Sequence[str] = ("gfx950",),
    receipt: int | None = None,
    drop: Sequence[str] = (),
    asm: bool = False,
    keep: bool = False,
    **arguments: Any,
) -> KernelSet:
    parsed = loads(HEADER + manifest if "[[modules]]" not in manifest else manifest, file="m.toml")
    variants = parsed.bwd_variants if module == "libmha_bwd" else parsed.fwd_variants
    selection = Selection(receipt, variants, frozenset(drop), asm, keep_unreachable=keep)
    return generate(tree, tree.module(module), selection, archs, Folder(out), **arguments)


def roles(kernels: KernelSet) -> Counter[str]:
    return Counter(kernel.role for kernel in kernels.kernels)


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_generate_py(
    tree: AiterTree, folder: Path, direction: str, receipt: int, targets: str
) -> Path:
    """Run CK's generate.py as AITER does, and return the output directory."""
    folder.mkdir()
    script = tree.root / tree.fmha_dir / "generate.py"
    options = ["-d", direction, "--receipt", str(receipt), "--targets", targets]
    subprocess.run(
        [sys.executable, "-B", "-W", "ignore", script, *options, "--output_dir", folder],
        check=True,
        env={"PYTHONHASHSEED": "0"},
    )
    return folder
