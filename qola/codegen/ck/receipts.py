"""Finds the receipts that a CK knows, and defines the emulated ones.

A receipt is CK's number for the needs of one framework. CK treats an unknown number as "no
restriction", so that a typing error would build everything: qola refuses unknown numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qola.aiter.expressions import parse
from qola.aiter.module_config import missing_ck
from qola.aiter.tree import AiterTree
from qola.codegen.types import FieldValue
from qola_base.errors import AiterError, CodegenError, Finding

#: Directions of one module. A receipt of one direction counts as known to all of them.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "fwd": ("fwd", "fwd_splitkv", "batch_prefill", "pagedkv_prefill", "fwd_appendkv"),
    "bwd": ("bwd",),
}
#: (field, allowed values); None for a direction the receipt has no kernels of.
Rules = tuple[tuple[str, tuple[FieldValue, ...]], ...]


@dataclass(frozen=True)
class Emulated:
    """A receipt that selects kernels of another one by rules on their fields."""

    base: int
    rules: Mapping[str, Rules | None]


#: Receipt 700 serves TransformerEngine. Later AITER trees patch CK to have it; CK's own receipt has
#: priority.
EMULATED: Mapping[int, Emulated] = {
    700: Emulated(
        base=600,
        rules={
            "fwd": (
                ("dtype", ("fp16", "bf16")),
                ("vlayout", ("row",)),
                ("squant", (False,)),
                ("lse", (True,)),
                ("skip", (False,)),
                ("sink", (False,)),
                ("logits", (False,)),
            ),
            "fwd_splitkv": None,
            "batch_prefill": None,
            # AITER does not have these; add_directions does.
            "pagedkv_prefill": (("dtype", ("fp16", "bf16")),),
            "fwd_appendkv": (("dtype", ("fp16", "bf16")),),
            "bwd": (
                ("dtype", ("fp16", "bf16")),
                ("dropout_kind", ("no", "dropout_wg32", "dropout_wg16")),
            ),
        },
    )
}


def family_of(direction: str) -> str:
    """Return the family (fwd or bwd) a direction belongs to."""
    return next(name for name, members in FAMILIES.items() if direction in members)


@cache
def receipts_in(source: str) -> frozenset[int]:
    """Return the numbers with which a Python text compares the name `receipt`."""
    found: set[int] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Compare) and getattr(node.left, "id", "") == "receipt":
            for part in node.comparators:
                values = part.elts if isinstance(part, (ast.Tuple, ast.List, ast.Set)) else [part]
                found.update(
                    v.value
                    for v in values
                    if isinstance(v, ast.Constant) and isinstance(v.value, int)
                )
    return frozenset(found)


def native_receipts(fmha_dir: Path, family: str) -> frozenset[int]:
    """Return the receipts that a CK knows for a family.

    They are the numbers in comparisons of its op modules, or of all modules if these have other
    names. 0 is the documented default.
    """
    ops = [fmha_dir / f"codegen/ops/fmha_{direction}.py" for direction in FAMILIES[family]]
    files = [path for path in ops if path.is_file()] or sorted(fmha_dir.rglob("*.py"))
    found = {0}
    try:
        for path in files or [fmha_dir / "generate.py"]:
            found |= receipts_in(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise CodegenError(
            Finding(
                f"CK's {path.name}",
                f"cannot be read: {error}",
                "CK's generator",
                "use an AITER tree whose Composable Kernel is whole "
                "(git submodule update --init --recursive)",
            )
        ) from None
    return frozenset(found)


def known_receipts(tree: AiterTree, module: str) -> tuple[int, ...]:
    """Return CK's own receipts for a module of AITER and those of `EMULATED`, sorted.

    Raises:
        AiterError: the tree has no Composable Kernel.
        CodegenError: it cannot be read.
    """
    if not tree.has_ck:
        raise AiterError(missing_ck(tree.root, tree.ck_dir, module))
    family = "bwd" if "_bwd" in module else "fwd"
    return tuple(sorted(native_receipts(tree.root / tree.fmha_dir, family) | set(EMULATED)))


def emulated(receipt: int, native: Iterable[int]) -> Emulated | None:
    """Return the rules of an emulated receipt, None if CK knows the receipt."""
    return None if receipt in native else EMULATED.get(receipt)


def source(receipt: int, native: Iterable[int]) -> int:
    """Return the receipt that is passed to CK's generator."""
    made = emulated(receipt, native)
    return made.base if made else receipt
