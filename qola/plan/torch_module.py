"""Modules that Python imports beside PyTorch: AITER's sources, and for attention kernel instances.

A torch module is AITER's own: its sources are compiled with PyTorch's headers and make one symbol,
PyInit_<name>. Kernel instances are those of the library of its direction, wherever its flags mean
the same to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter.attention import is_attention
from qola.aiter.includes import includes
from qola.aiter.missing_names import Includer, missing_headers
from qola.aiter.preprocess import defined_by, without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.errors import Finding, PlanError
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.entry_macros import entry_macros
from qola.plan.further import own_files
from qola.plan.generated import GeneratedModule
from qola.plan.header_sets import header_set
from qola.plan.model import HeaderSet, KernelFlags
from qola.plan.module_entry import refuse_missing
from qola.plan.python_module import EXTENSION_NAME, entry_names
from qola.plan.request import ResolvedRequest

_GUARDED = r"^[ \t]*#[ \t]*ifndef[ \t]+{0}\s*\n[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
_DEFINED = r"^[ \t]*#[ \t]*define[ \t]+{0}[ \t]+(\w+)[ \t]*$"
#: What a source with device code has: kernels, or a launch of one.
_DEVICE = re.compile(r"__global__|__device__|<<<|hipLaunchKernel|launch_kernel|make_kernel")


@dataclass(frozen=True)
class OwnParts:
    """What a torch module has beside kernel instances.

    Attributes:
        library: its file, by whose name Python finds it.
        host_only: its sources without device code.
        init: those that define the module's function for Python.
    """

    headers: HeaderSet
    library: str
    symbol: str
    copts: tuple[str, ...]
    host_only: tuple[str, ...]
    init: tuple[str, ...]


def own_parts(resolved: ResolvedRequest, module: GeneratedModule, output: Folder) -> OwnParts:
    """Return what a torch module has beside kernel instances.

    Raises:
        PlanError: attention without a kernel; a source includes a header that is nowhere, or none
            makes a module of Python's.
        AiterError: the tree has none of its headers.
    """
    tree, name = resolved.request.tree, module.spec.name
    attention = is_attention(module.config.name)
    if attention and not module.kernels.kernels and not module.kernels.code_objects:
        raise PlanError(
            Finding(
                resolved.place(module.spec, "drop_directions"),
                f"{name} without any kernel instance",
                "at least one direction with kernels",
                "drop fewer directions, or remove the module",
            )
        )
    folder = output.below(name)
    texts = {source.file: folder.text(source.file) for source in module.kernels.sources}
    read = texts if attention else own_files(module, folder)
    macros = entry_macros(tree, module, resolved.archs)
    headers = header_set(
        tree, module.config, name, {n for text in read.values() for n, _ in includes(text)}
    )
    includers = [Includer(f"{name}/{file}", text) for file, text in read.items()]
    missing = missing_headers(
        tree.root,
        headers.include_dirs,
        includers,
        macros.known,
        frozenset((*module.kernels.headers, "qola_asm.h")),
    )
    refuse_missing(tree, name, missing)
    library = library_file(resolved.request.manifest.namespace, module.config.md_name or name)
    init = [
        Path(source.name).stem
        for source in module.kernels.sources
        if EXTENSION_NAME in entry_names(texts[source.file], macros.known)
    ]
    host_only = {
        Path(source.name).stem
        for source in module.kernels.sources
        if source.role in ("dispatch", "asm") or not _DEVICE.search(texts[source.file])
        # Others may have kernels by what they include.
        if attention or Path(source.name).stem in init
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
    return OwnParts(
        headers,
        library,
        f"PyInit_{library.removesuffix('.so')}",
        module.config.flags_hip + macros.flags,
        tuple(sorted(host_only)),
        tuple(sorted(set(init))),
    )


def kernel_config(
    tree: AiterTree,
    config: ModuleConfig,
    library: ModuleConfig,
    headers: Iterable[HeaderSet],
    texts: Sequence[str],
) -> ModuleConfig:
    """Return the entry by which a torch module's kernel instances are compiled.

    It is the library's where the flags of both mean the same to them. A macro means nothing that
    neither they nor their headers name; one with the value that a header gives it where it is not
    defined may as well be left out.

    Args:
        headers: what they include.
        texts: their sources.
    """
    files = sorted({file for found in headers for file in found.files})
    read = [*(tree.text(file) for file in files), *texts]

    differing = sorted({*config.flags_hip} ^ {*library.flags_hip})
    plain = all(re.fullmatch(r"-D\w+(=\w*)?", flag) for flag in differing)
    same = plain and all(_without_effect(flag, read) for flag in differing)
    return replace(config, flags_hip=library.flags_hip) if same else config


def _without_effect(flag: str, texts: Sequence[str]) -> bool:
    (name, value), *_ = defined_by([flag]).items()
    naming = [text for text in texts if name in text]
    naming = [text for text in naming if re.search(rf"\b{name}\b", without_comments(text))]
    if not naming:
        return True
    defaults = [m[1] for text in naming for m in re.finditer(_GUARDED.format(name), text, re.M)]
    return len(defaults) == 1 and value in (defaults[0], _value_of(defaults[0], naming))


def _value_of(name: str, texts: Iterable[str]) -> str | None:
    """Return what a macro is defined as, where that is the same everywhere."""
    values = {m[1] for text in texts for m in re.finditer(_DEFINED.format(name), text, re.M)}
    return values.pop() if len(values) == 1 else None


def compared(
    package: str, config: ModuleConfig, library: ModuleConfig, used: ModuleConfig
) -> KernelFlags:
    """Compare a module's flags with those of the library that has its kernel instances.

    Args:
        used: the entry by which they are compiled.
    """
    return KernelFlags(
        package,
        library.name,
        tuple(flag for flag in config.flags_hip if flag not in library.flags_hip),
        tuple(flag for flag in library.flags_hip if flag not in config.flags_hip),
        (used.flags_hip, used.include_dirs) == (library.flags_hip, library.include_dirs),
    )
