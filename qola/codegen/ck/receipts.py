"""Receipts of CK, and the selection of kernels by their fields: never by their names.

A receipt is CK's number for the needs of one framework. CK treats an unknown number as "no
restriction", so that a typing error would build everything: qola refuses unknown numbers. Emulated
receipts and variants select by the values of fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qola.aiter.expressions import parse
from qola.aiter.module_config import missing_ck
from qola.aiter.tree import AiterTree
from qola.codegen.types import Bucket, FieldValue
from qola_base.errors import AiterError, CodegenError, Finding

#: Directions of one module. A receipt of one direction counts as known to all of them.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "fwd": ("fwd", "fwd_splitkv", "batch_prefill", "pagedkv_prefill", "fwd_appendkv"),
    "bwd": ("bwd",),
}
Rules = Mapping[str, tuple[FieldValue, ...]]
"""Allowed values of fields."""


@dataclass(frozen=True)
class Emulated:
    """A receipt that selects kernels of another one by rules on their fields.

    Attributes:
        rules: by direction; None for a direction without kernels.
    """

    base: int
    rules: Mapping[str, Rules | None]


#: Receipt 700 serves TransformerEngine. Later AITER trees patch CK to have it; CK's own receipt has
#: priority.
EMULATED: Mapping[int, Emulated] = {
    700: Emulated(
        base=600,
        rules={
            "fwd": {
                "dtype": ("fp16", "bf16"),
                "vlayout": ("row",),
                "squant": (False,),
                "lse": (True,),
                "skip": (False,),
                "sink": (False,),
                "logits": (False,),
            },
            "fwd_splitkv": None,
            "batch_prefill": None,
            # AITER does not have these; add_directions does.
            "pagedkv_prefill": {"dtype": ("fp16", "bf16")},
            "fwd_appendkv": {"dtype": ("fp16", "bf16")},
            "bwd": {
                "dtype": ("fp16", "bf16"),
                "dropout_kind": ("no", "dropout_wg32", "dropout_wg16"),
            },
        },
    )
}


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


#: Fields that are False if they are missing: split-KV kernels have no dropout, older CKs no sink. A
#: kernel serves every value of any other missing field.
WITHOUT = frozenset({"dropout", "skip", "sink", "squant", "logits"})


def mismatches(
    where: Mapping[str, Sequence[FieldValue]], fields: Mapping[str, FieldValue]
) -> list[str]:
    """Return the names in `where` whose allowed values lack the kernel's value."""
    return [
        name
        for name, allowed in where.items()
        if (name in fields or name in WITHOUT) and fields.get(name, False) not in allowed
    ]


def broken_rule(rules: Rules | None, receipt: int, fields: Mapping[str, FieldValue]) -> str:
    """Return the rule of an emulated receipt that drops a kernel, "" if it is kept."""
    if rules is None:
        return f"receipt {receipt}: no kernels of this direction"
    failing = mismatches(rules, fields)
    if not failing:
        return ""
    allowed = rules[failing[0]]
    return f"receipt {receipt}: {failing[0]} must be {' or '.join(map(show, allowed))}"


def show(value: FieldValue) -> str:
    """Format the value of a field for messages."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def takes(size: Bucket, steps: Bucket) -> bool:
    """Whether head dims are multiples of positive steps, and not of negative ones."""
    return all((part % step == 0) == (step > 0) for part, step in zip(size, steps, strict=True))


def resolve_hdims(
    wanted: Iterable[Bucket], chain: Mapping[Bucket, Iterable[Bucket]]
) -> tuple[set[Bucket], list[Bucket]]:
    """Return (buckets that serve the wanted head dims, wanted ones that no bucket serves).

    A bucket of this size serves them; otherwise the first bucket of the full dispatch that takes
    such a problem, as in CK (hdim 96 runs in CK's forward 96x128 bucket).

    Args:
        chain: the buckets of one arch and dtype, in dispatch order, with the (step_q, step_v) of
            the kernels of each, as `takes` has them.
    """
    found: set[Bucket] = set()
    missing = []
    for q, v in wanted:
        fitting = [
            b
            for b, kernels in chain.items()
            if q <= b[0] and v <= b[1] and any(takes((q, v), steps) for steps in kernels)
        ]
        if (q, v) in chain:
            found.add((q, v))
        elif fitting:
            found.add(fitting[0])
        else:
            missing.append((q, v))
    return found, missing
