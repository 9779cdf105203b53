"""The code objects of modules beside attention, in AITER's later trees: all of a generator's."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.asm.later import asked_modules
from qola.codegen.types import CodeObject
from qola.errors import CodegenError, Finding
from qola.files import sha256_of

_HOOK = "AITER_EMBEDDED_HSA_MAP"


def code_objects(
    tree: AiterTree,
    config: ModuleConfig,
    archs: Sequence[str],
    subdirs: Sequence[str] | None = None,
) -> tuple[CodeObject, ...]:
    """Return what a module may load, where AITER's header takes it from the library.

    That is all in ``hsa/<arch>/<subdir>`` of what its calls of `hsa/codegen.py` name: its tables
    have a row for each, and none is left out. () for trees without that hook.

    Args:
        subdirs: these alone; None for all.

    Raises:
        CodegenError: no arch has any.
    """
    asked = asked_modules(tree, config.generators)
    header = f"{tree.csrc_dir}/include/aiter_hip_common.h"
    if not asked or _HOOK not in tree.text(header):
        return ()
    chosen = [name for name in asked if subdirs is None or name in subdirs]
    found = []
    for arch in archs:
        for name in chosen:
            folder = tree.root / tree.hsa_dir / arch / name
            for path in sorted(folder.rglob("*.co")):
                file = path.relative_to(tree.root).as_posix()
                key = posixpath.join("hsa", posixpath.relpath(file, tree.hsa_dir))
                found.append(CodeObject(key, file, arch, sha256_of(path), path.stat().st_size))
    if chosen and not found:
        raise CodegenError(
            Finding(
                f"module {config.name}",
                f"no code object in {', '.join(chosen)} for {', '.join(archs)}",
                f"an arch that {tree.hsa_dir} has some for",
            )
        )
    return tuple(found)
