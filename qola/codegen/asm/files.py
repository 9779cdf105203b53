"""The code objects that modules outside attention embed.

AITER's later trees have a hook for embedded code objects, and `hsa/codegen.py` names modules with
tables of them. All trees name further files in strings of their sources and generated tables.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.asm.later import named_modules
from qola.codegen.asm.set import co_files, code_object
from qola.codegen.types import CodeObject
from qola_base.errors import CodegenError, Finding

_HOOK = "AITER_EMBEDDED_HSA_MAP"
#: The file name of a code object at the end of a string in C++.
_NAMED = re.compile(r'([\w.-]+\.co)"')


def code_objects(
    tree: AiterTree,
    config: ModuleConfig,
    archs: Sequence[str],
    subdirs: Sequence[str] | None,
    texts: Iterable[str],
) -> tuple[CodeObject, ...]:
    """Return the code objects of a module outside attention, sorted by key.

    These are all files in ``hsa/<arch>/<subdir>`` of the modules that its calls of `hsa/codegen.py`
    name, and all files whose name a string in one of `texts` ends with; of `subdirs` only, if the
    manifest names some.

    Args:
        texts: of its sources and generated tables.

    Raises:
        CodegenError: no arch has a code object of the modules that calls name.
    """
    header = f"{tree.csrc_dir}/include/aiter_hip_common.h"
    if not (tree.root / header).is_file():
        return ()
    called = named_modules(tree, config.generators) if _HOOK in tree.text(header) else ()
    chosen = [name for name in called if subdirs is None or name in subdirs]
    found = {
        file: arch
        for arch in archs
        for name in chosen
        for file in co_files(tree, f"{tree.hsa_dir}/{arch}/{name}")
    }
    if chosen and not found:
        missing = f"no code object in {', '.join(chosen)} for {', '.join(archs)}"
        expected = f"an arch that {tree.hsa_dir} has some for"
        raise CodegenError(Finding(f"module {config.name}", missing, expected))
    for arch, file in _named_files(tree, archs, texts):
        subdir = posixpath.relpath(file, f"{tree.hsa_dir}/{arch}").partition("/")[0]
        if subdirs is None or subdir in subdirs:
            found[file] = arch
    return tuple(code_object(tree, file, found[file]) for file in sorted(found))


def _named_files(
    tree: AiterTree, archs: Sequence[str], texts: Iterable[str]
) -> Iterator[tuple[str, str]]:
    names = {name for text in texts for name in _NAMED.findall(text)}
    for arch in archs if names else ():
        for file in co_files(tree, f"{tree.hsa_dir}/{arch}"):
            if posixpath.basename(file) in names:
                yield arch, file
