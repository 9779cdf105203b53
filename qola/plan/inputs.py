"""What of an AITER tree a plan depends on: files, and directories of a local tree."""

from __future__ import annotations

from collections.abc import Iterable

from qola.aiter.attention import ATTENTION, is_assembly_alone
from qola.aiter.tree import AiterTree
from qola.codegen.asm.path import launched_subdirs
from qola.plan.model import HeaderSet
from qola.plan.request import ResolvedRequest


def watched_dirs(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return the directories whose listing decides a plan, relative to the tree, sorted.

    A file that comes or goes there changes the plan, as no file that was read can tell: code
    objects and their tables, sources, tuning data.
    """
    tree = resolved.request.tree
    dirs = {"aiter/configs"}
    for module in resolved.modules:
        spec = module.spec
        launches = spec.name in ATTENTION or is_assembly_alone(spec.name)
        if launches and (spec.hsa_subdirs is None or spec.hsa_subdirs):
            for subdir in launched_subdirs(tree, module.config, spec.drop_srcs):
                dirs.update(f"{tree.hsa_dir}/{arch}/{subdir}" for arch in resolved.archs)
        dirs.update(src for src in module.config.srcs if (tree.root / src).is_dir())
    return tuple(sorted(dirs))


def input_files(
    tree: AiterTree, header_sets: Iterable[HeaderSet], sources: Iterable[str]
) -> tuple[str, ...]:
    """Files of the tree a plan depends on: configuration, generators, sources, every header."""
    files = {file for headers in header_sets for file in headers.files}
    files.add("aiter/jit/optCompilerConfig.json")
    optional = ("aiter/jit/core.py", "aiter/_version.py", *sources)
    files.update(file for file in optional if (tree.root / file).is_file())
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
