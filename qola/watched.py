"""Which directories of a local AITER tree a plan depends on, beside single files."""

from __future__ import annotations

from collections.abc import Iterable

from qola.attention import ATTENTION
from qola.plan_request import Request, configure


def watched_dirs(request: Request, archs: Iterable[str]) -> tuple[str, ...]:
    """Return the directories whose listing decides a plan, relative to the tree, sorted.

    A file that comes or goes there changes the plan, as no file that was read can tell: code
    objects and their tables, sources, tuning data.

    Args:
        request: what was planned.
        archs: the archs it was planned for.

    Raises:
        QolaError: as `qola.plan_request.configure`.
    """
    tree = request.tree
    dirs = {"aiter/configs"}
    for spec in request.manifest.modules:
        if spec.name in ATTENTION and (spec.hsa_subdirs is None or spec.hsa_subdirs):
            subdir = ATTENTION[spec.name].asm_subdir
            dirs.update(f"{tree.hsa_dir}/{arch}/{subdir}" for arch in archs)
        srcs = configure(request, spec).srcs
        dirs.update(src for src in srcs if (tree.root / src).is_dir())
    return tuple(sorted(dirs))
