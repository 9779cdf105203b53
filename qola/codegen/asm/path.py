"""Generates the assembly path of a library, and lists the code objects of other modules.

AITER's later trees have a hook for embedded code objects, and `hsa/codegen.py` names modules with
tables of them. All trees name further files in strings of their sources and generated tables.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from qola.aiter.attention import attention_of
from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.embed import generate_asm
from qola.codegen.asm.later import config_modules, generate_later_asm, named_modules
from qola.codegen.asm.set import AsmSet, co_files, code_object
from qola.codegen.types import CodeObject, KernelSet, Selection
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding

_HOOK = "AITER_EMBEDDED_HSA_MAP"
#: The file name of a code object at the end of a string in C++.
_NAMED = re.compile(r'([\w.-]+\.co)"')


def assembly_path(
    tree: AiterTree,
    config: ModuleConfig,
    calls: Sequence[GeneratorCall],
    selection: Selection,
    archs: Sequence[str],
    out_dir: Folder,
) -> AsmSet:
    """Generate the assembly path of a library for the problems of its variants.

    Args:
        calls: the library's generators of this path.
        out_dir: gets ``include/``, or ``dispatch/`` and ``kernels/``.
    """
    named, modules = named_modules(tree, calls), config_modules(tree, config, selection.drop_srcs)
    if named or modules:
        return generate_later_asm(tree, config, selection, archs, out_dir, modules, named)
    if not selection.asm:
        return AsmSet()
    return generate_asm(tree, config.name, calls, archs, selection.variants, out_dir)


def launched_subdirs(
    tree: AiterTree, config: ModuleConfig, drop_srcs: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the folders below ``hsa/<arch>`` from which a library can launch code objects."""
    own = attention_of(config.name).asm_subdir
    return config_modules(tree, config, drop_srcs) or (own,)


def generate_assembly_only(
    tree: AiterTree,
    config: ModuleConfig,
    selection: Selection,
    archs: Sequence[str],
    out_dir: Folder,
) -> KernelSet:
    """Generate a library that only has assembly kernels.

    Raises:
        CodegenError: as `assembly_path`; the entry sources need Composable Kernel, no assembly
            kernel serves a variant, or the module has none.
    """
    script = f"{tree.hsa_dir}/codegen.py"
    calls = [call for call in config.generators if call.script == script]
    asm = assembly_path(tree, config, calls, selection, archs, out_dir)
    if findings := list(_problems(tree, config, selection, archs, asm)):
        raise CodegenError(findings, "a library without Composable Kernel")
    return KernelSet(
        kernels=(),
        sources=(),
        warnings=(*_undropped(config, selection), *asm.findings),
        code_objects=asm.code_objects,
        headers=tuple(table.name for table in asm.tables),
        tables=asm.tables,
        inputs=asm.inputs,
    )


def _problems(
    tree: AiterTree,
    config: ModuleConfig,
    selection: Selection,
    archs: Sequence[str],
    asm: AsmSet,
) -> Iterator[Finding]:
    place = f"module {config.name}"
    if not asm.tables:
        yield Finding(
            place,
            "-DENABLE_CK=0, and no source that includes asm_*_configs.hpp",
            "an AITER tree whose entry sources can do without Composable Kernel",
            "remove -DENABLE_CK=0, or use an AITER of June 2026 or later",
        )
        return
    folders = "|".join(launched_subdirs(tree, config, selection.drop_srcs))
    for arch in sorted(set(archs) - set(asm.archs)):
        yield Finding(
            f"{place}, {arch}",
            "no assembly kernel for the manifest, and -DENABLE_CK=0",
            f"code objects in {tree.hsa_dir}/{arch}/({folders})",
            f"remove {arch} from the architectures, or widen hsa_subdirs or the variants",
        )
    for one in selection.kernels:
        yield Finding(
            one.place,
            f"{one.config.name}, and -DENABLE_CK=0",
            "a library with kernels of Composable Kernel",
            "remove one of the two",
        )
    for variant in selection.variants if asm.archs else ():
        unserved = set(variant.hdim or ()) - asm.served.get(variant.index, frozenset())
        if variant.index in asm.served and not unserved:
            continue
        hdims = ", ".join(f"{q}x{v}" for q, v in sorted(unserved))
        yield Finding(
            variant.place,
            f"no assembly kernel on {' and '.join(archs)}"
            + (f" for head dims {hdims}" if hdims else "")
            + ", and -DENABLE_CK=0",
            "problems that assembly kernels serve: without bias and dropout, of the head dims and "
            "data types in the tables",
            "narrow the variant, or build with Composable Kernel",
        )


def _undropped(config: ModuleConfig, selection: Selection) -> Iterator[Finding]:
    """Warn of directions of Composable Kernel that the manifest keeps and the flags disable."""
    for call in config.ck_calls:
        direction = call.option("-d", "--direction")
        if direction not in (None, *selection.drop_directions):
            yield Finding(
                f"module {config.name}",
                f"direction {direction} of Composable Kernel, while -DENABLE_CK=0 builds without "
                "it",
                f'drop_directions with "{direction}", or no -DENABLE_CK=0',
                f'write "{direction}" into drop_directions',
                "warning",
            )


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
