"""Generates the assembly path of a library, and libraries without Composable Kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qola.aiter.attention import attention_of
from qola.aiter.tree import AiterTree, GeneratorCall, ModuleConfig
from qola.codegen.asm.embed import generate_asm
from qola.codegen.asm.later import config_modules, generate_later_asm, named_modules
from qola.codegen.asm.set import AsmSet
from qola.codegen.types import KernelSet, Selection
from qola.common.folder import Folder
from qola_base.errors import CodegenError, Finding


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
    named = named_modules(tree, calls)
    if named or config_modules(tree, config, selection.drop_srcs):
        return generate_later_asm(tree, config, selection, archs, out_dir, named=named)
    if not selection.asm:
        return AsmSet()
    return generate_asm(tree, config.name, calls, archs, selection.variants, out_dir)


def launched_subdirs(
    tree: AiterTree, config: ModuleConfig, drop_srcs: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the folders below ``hsa/<arch>`` from which a library can launch code objects."""
    own = attention_of(config.name).asm_subdir
    return config_modules(tree, config, frozenset(drop_srcs)) or (own,)


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
    folders = "|".join(launched_subdirs(tree, config, tuple(selection.drop_srcs)))
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
