"""Which directories of a local AITER tree a plan depends on, beside single files."""

from __future__ import annotations

from collections.abc import Iterable

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import AiterTree
from qola.plan.model import HeaderSet
from qola.plan.request import Request, configure


def watched_dirs(request: Request, archs: Iterable[str]) -> tuple[str, ...]:
    """Return the directories whose listing decides a plan, relative to the tree, sorted.

    A file that comes or goes there changes the plan, as no file that was read can tell: code
    objects and their tables, sources, tuning data.

    Args:
        request: what was planned.
        archs: the archs it was planned for.

    Raises:
        QolaError: as `qola.plan.request.configure`.
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


def _inputs(
    tree: AiterTree, header_sets: Iterable[HeaderSet], sources: Iterable[str]
) -> tuple[str, ...]:
    """Files of the tree a plan depends on: configuration, generators, sources, every header."""
    files = {file for headers in header_sets for file in headers.files}
    files.add("aiter/jit/optCompilerConfig.json")
    files.update(f for f in ("aiter/jit/core.py", "aiter/_version.py") if (tree.root / f).is_file())
    files.update(sources)
    for directory in (
        tree.fmha_dir,
        f"{tree.csrc_dir}/cpp_itfs",
        f"{tree.csrc_dir}/py_itfs_cu",
        tree.hsa_dir,
    ):
        files.update(
            path.relative_to(tree.root).as_posix() for path in (tree.root / directory).rglob("*.py")
        )
    return tuple(sorted(files))
