"""Files of an AITER tree that go into a bundle unchanged, beside libraries and headers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from qola.aiter.tree import AiterTree

_CONFIGS = ("aiter/configs/*.csv", "aiter/configs/model_configs/**/*")
_LICENSES = ("LICENSE", "*.dist-info/LICENSE", "*.dist-info/licenses/LICENSE")


def configs(tree: AiterTree) -> tuple[str, ...]:
    """Return AITER's tuning tables and all of model_configs/, relative to the tree, sorted."""
    return _files(tree.root, _CONFIGS)


def licenses(tree: AiterTree) -> tuple[str, ...]:
    """Return the license texts of AITER and Composable Kernel, relative to the tree, sorted.

    Those that are missing are missing here: it matters to who makes a bundle, not to a plan.
    """
    return _files(tree.root, (*_LICENSES, f"{tree.ck_dir}/LICENSE"))


def _files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return tuple(sorted(path.relative_to(root).as_posix() for path in found))
