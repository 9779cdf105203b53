"""Warns about known faults of AITER, which it recognises by the text of the sources.

known_faults.json describes them. A patch of ROCm/QoLA's patches/aiter fixes each. A tree with the
fix, from the patch or from AITER itself, has another text and gets no warning.

Kernels whose results are wrong, which the emulator has proven, are in proven_faults.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from qola.aiter.tree import AiterTree, ModuleConfig
from qola.common.version import docs_url
from qola_base.errors import Finding
from qola_base.files import lossy_text
from qola_base.json_types import Scalar

FILE = Path(__file__).with_name("known_faults.json")


def known_faults(
    tree: AiterTree,
    config: ModuleConfig,
    archs: Collection[str],
    variants: Iterable[Mapping[str, Collection[object]]] = (),
) -> Iterator[Finding]:
    """Yield a warning for each known fault of a tree that a library's kernels can meet.

    Args:
        variants: values by dimension of the manifest's variants; () selects all kernels.
    """
    wanted = list(variants)
    for fault in json.loads(FILE.read_text(encoding="utf-8")):
        asked = fault.get("variant", {})
        if (
            fault["module"] != config.name
            or ("archs" in fault and not set(fault["archs"]) & set(archs))
            or (fault.get("ck") and config.without_ck)
            or (wanted and not any(_asks(variant, asked) for variant in wanted))
        ):
            continue
        if all(holds(tree, condition) for condition in fault["when"]):
            yield Finding(
                _place(tree, fault["when"][0]),
                fault["fault"],
                f"a tree with ROCm/QoLA's patch {fault['patch']}, or one that does not need it",
                "patches_dir = a copy of ROCm/QoLA's patches/aiter; one that does not fit this "
                f"AITER must be rebased ({docs_url('guide/bazel.md')})",
                "warning",
            )


def _asks(variant: Mapping[str, Collection[object]], asked: Mapping[str, Scalar]) -> bool:
    """Return whether a variant includes the values that trigger a fault."""
    return all(value in variant.get(name, (value,)) for name, value in asked.items())


def _text(tree: AiterTree, file: str) -> str | None:
    path = tree.root / tree.meta_dir / file
    return lossy_text(path) if path.is_file() else None


def holds(tree: AiterTree, condition: Mapping[str, str]) -> bool:
    """Return whether a tree's file contains, or lacks, a pattern; a missing file fulfils neither.

    Args:
        condition: ``file``, below the directory with csrc and hsa, and ``has`` or ``lacks``.
    """
    text = _text(tree, condition["file"])
    if text is None:
        return False
    pattern = condition.get("has") or condition["lacks"]
    return (re.search(pattern, text, re.MULTILINE) is not None) == ("has" in condition)


def _place(tree: AiterTree, condition: Mapping[str, str]) -> str:
    text = _text(tree, condition["file"]) or ""
    match = re.search(condition["has"], text, re.MULTILINE) if "has" in condition else None
    line = text.count("\n", 0, match.start()) + 1 if match else 0
    return f"{condition['file']}:{line}" if line else condition["file"]
