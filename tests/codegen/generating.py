"""Helpers that generate kernels, and run CK's generator without qola."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from qola.aiter.tree import AiterTree
from qola.codegen.asm.domain import Variant
from qola.codegen.generate import generate
from qola.codegen.types import KernelSet, Selection
from qola.common.folder import Folder
from qola.manifest.load import loads

BOTH = ("gfx942", "gfx950")
QUICKSTART = (
    '[[mha_fwd_variants]]\ndtype = "bf16"\nhdim = 128\nhas_bias = false\n'
    "has_alibi = false\nhas_dropout = false\nhas_lse = true\n"
)


def variants_of(tables: str, module: str = "libmha_fwd") -> tuple[Variant, ...]:
    """Return the variants of a module in a manifest with these tables."""
    parsed = loads(f'[[modules]]\nname = "{module}"\n{tables}', file="m.toml")
    return parsed.bwd_variants if module == "libmha_bwd" else parsed.fwd_variants


def run(
    tree: AiterTree,
    out: Path,
    tables: str = "",
    module: str = "libmha_fwd",
    archs: Sequence[str] = ("gfx950",),
    *,
    drop: Collection[str] = (),
    explain: bool = False,
    **selection: Any,
) -> KernelSet:
    """Generate the kernels of variants; `selection` are other fields of Selection."""
    chosen = Selection(
        variants=variants_of(tables, module), drop_directions=frozenset(drop), **selection
    )
    config = tree.module(module)
    return generate(tree, config, chosen, archs, Folder(out), explain=explain)


def roles(kernels: KernelSet) -> Counter[str]:
    return Counter(kernel.role for kernel in kernels.kernels)


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_generate_py(
    tree: AiterTree, folder: Path, direction: str, receipt: int, targets: str = ""
) -> Path:
    """Run CK's generate.py as AITER does, and return the output directory."""
    folder.mkdir()
    script = tree.root / tree.fmha_dir / "generate.py"
    options = ["-d", direction, "--receipt", str(receipt), "--output_dir", str(folder)]
    options += ["--targets", targets] if targets else []
    subprocess.run(
        [sys.executable, "-B", "-W", "ignore", script, *options],
        check=True,
        env={"PYTHONHASHSEED": "0"},
    )
    return folder
