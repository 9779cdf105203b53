"""Modules that use PyTorch: AITER's sources, and for attention kernel instances.

Kernel instances are those of the library of its direction if the module's flags do not change them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from qola.aiter.attention import is_attention
from qola.aiter.includes import includes
from qola.aiter.preprocess import defined_by, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.entry_macros import entry_macros
from qola.plan.generate import GeneratedModule, own_texts
from qola.plan.inputs import find_headers
from qola.plan.model import HeaderSet, KernelFlags, PlannedFile, TorchModule
from qola.plan.module_entry import refuse_missing, without_kernels
from qola.plan.python_module import EXTENSION_NAME, init_names
from qola.plan.request import ResolvedRequest

_GUARDED = r"^[ \t]*#[ \t]*ifndef[ \t]+{0}\s*\n[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
#: Marks device code in a source: a kernel, or the launch of one.
_DEVICE = re.compile(r"__global__|__device__|<<<|hipLaunchKernel|launch_kernel|make_kernel")


def plan_torch_module(
    resolved: ResolvedRequest,
    module: GeneratedModule,
    output: Folder,
    kernels: tuple[int, ...],
    kernel_flags: tuple[KernelFlags, ...],
    entry_sources: tuple[PlannedFile, ...],
) -> tuple[TorchModule, HeaderSet]:
    """Plan a torch module whose kernel instances were planned; return it with its headers.

    Raises:
        PlanError: attention without a kernel, a header that does not exist, or no source with an
            init function for Python.
    """
    tree, config, name = resolved.request.tree, module.config, module.spec.name
    attention = is_attention(config.name)
    if attention and not module.kernels.kernels and not module.kernels.code_objects:
        raise PlanError(without_kernels(resolved, module))
    folder = output.below(name)
    texts = {source.file: folder.text(source.file) for source in module.kernels.sources}
    macros = entry_macros(tree, module, resolved.archs)
    read = texts if attention else own_texts(module, folder)
    roots = {root for text in read.values() for root, _ in includes(text)}
    headers = find_headers(tree, config, name, roots)
    refuse_missing(tree, module, read, headers.include_dirs, macros.known)
    init = {
        Path(source.name).stem
        for source in module.kernels.sources
        if EXTENSION_NAME in init_names(texts[source.file], macros.known)
    }
    if not init:
        raise PlanError(
            Finding(
                f"{name}.srcs",
                f"no source with {EXTENSION_NAME}, so that Python finds no function to call",
                f"a source with PYBIND11_MODULE({EXTENSION_NAME}, m)",
                "keep it (drop_srcs), or name it (srcs)",
            )
        )
    host_only = {
        Path(source.name).stem
        for source in module.kernels.sources
        if source.role in ("dispatch", "asm") or not _DEVICE.search(texts[source.file])
        # Sources of other modules may include kernels.
        if attention or Path(source.name).stem in init
    }
    library = library_file(resolved.request.manifest.namespace, config.md_name or name)
    planned = TorchModule(
        name=name,
        entry=config.name,
        library=library,
        symbol=f"PyInit_{library.removesuffix('.so')}",
        receipt=module.spec.receipt,
        copts=config.flags_hip + macros.flags,
        kernels=kernels,
        kernel_flags=kernel_flags,
        sources=module.planned_sources,
        host_only=tuple(sorted(host_only)),
        init=tuple(sorted(init)),
        headers=name,
        code_objects=module.kernels.code_objects,
        asm_tables=module.generated_files if attention else (),
        entry_sources=entry_sources,
        directions=module.kernels.directions,
        generated=() if attention else module.generated_files,
    )
    return planned, headers


def kernel_config(
    tree: AiterTree,
    config: ModuleConfig,
    library: ModuleConfig,
    headers: Iterable[HeaderSet],
    texts: Sequence[str],
) -> ModuleConfig:
    """Return the entry whose flags compile a torch module's kernel instances.

    It has the library's flags if the differing flags do not change the kernel instances. A macro
    changes nothing if neither sources nor headers name it, or if its value is the default that a
    header defines.
    """
    files = sorted({file for found in headers for file in found.files})
    read = [*(tree.text(file) for file in files), *texts]
    differing = sorted({*config.flags_hip} ^ {*library.flags_hip})
    macros_only = all(re.fullmatch(r"-D\w+(=\w*)?", flag) for flag in differing)
    if macros_only and all(_is_without_effect(flag, read) for flag in differing):
        return replace(config, flags_hip=library.flags_hip)
    return config


def _is_without_effect(flag: str, texts: Sequence[str]) -> bool:
    (name, value), *_ = defined_by([flag]).items()
    naming = [text for text in texts if name in text]
    naming = [text for text in naming if re.search(rf"\b{name}\b", without_comments(text))]
    if not naming:
        return True
    defaults = [m[1] for text in naming for m in re.finditer(_GUARDED.format(name), text, re.M)]
    return len(defaults) == 1 and value in (defaults[0], _value_of(defaults[0], naming))


def _value_of(name: str, texts: Iterable[str]) -> str | None:
    """Return the value of a macro; None if its definitions differ."""
    values = {m[1] for text in texts for m in re.finditer(_DEFINED.format(name), text, re.M)}
    return values.pop() if len(values) == 1 else None


def compare_flags(
    package: str, config: ModuleConfig, library: ModuleConfig, used: ModuleConfig
) -> KernelFlags:
    """Compare a module's flags with those of the library that has its kernel instances.

    Args:
        used: the entry whose flags compile them.
    """
    return KernelFlags(
        package,
        library.name,
        tuple(flag for flag in config.flags_hip if flag not in library.flags_hip),
        tuple(flag for flag in library.flags_hip if flag not in config.flags_hip),
        (used.flags_hip, used.include_dirs) == (library.flags_hip, library.include_dirs),
    )
