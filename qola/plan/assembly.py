"""Collects a plan's kernel instances, their units, headers and libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION
from qola.aiter.includes import includes
from qola.aiter.missing_names import Includer
from qola.aiter.tree import ModuleConfig
from qola.codegen.ck.batches import only_defines_name
from qola.codegen.types import KernelInstance
from qola.common.folder import Folder
from qola.common.layout import library_file
from qola.plan.batches import write_batches
from qola.plan.generate import GeneratedModule
from qola.plan.inputs import find_group_headers, find_headers
from qola.plan.model import (
    HeaderSet,
    KernelUnit,
    PlannedModule,
    TorchModule,
)
from qola.plan.module_entry import ModuleEntry, module_entry
from qola.plan.python_modules import kernel_config, plan_torch_module
from qola.plan.request import ResolvedRequest
from qola.plan.stubs import LazySources
from qola_base.files import sha256_of_text


class Assembly:
    """The part of a plan with kernel instances, to which modules are added one by one.

    Attributes:
        header_sets: by name.
        units: of the modules in their order, by name.
        entries: the public interface of each library, by its name.
    """

    def __init__(self, resolved: ResolvedRequest, output: Folder) -> None:
        self.header_sets: dict[str, HeaderSet] = {}
        self.kernels: list[KernelInstance] = []
        self.units: list[KernelUnit] = []
        self.modules: list[PlannedModule] = []
        self.torch_modules: list[TorchModule] = []
        self.entries: dict[str, ModuleEntry] = {}
        self._resolved = resolved
        self._tree = resolved.request.tree
        self._output = output
        self._unchanged = cache(self._tree.module)
        self._includers: dict[tuple[str, ...], Includer] = {}

    def add(self, module: GeneratedModule) -> None:
        """Add a C++ library.

        Raises:
            PlanError: it has no kernels, or includes a header that does not exist.
            AiterError: the tree lacks headers, or an entry point cannot be read.
        """
        name = module.spec.name
        first = len(self.kernels)
        lazy = self._add_kernels(module)
        folder = self._output.below(name)
        texts = {source.file: folder.text(source.file) for source in module.kernels.sources}
        roots = {root for text in texts.values() for root, _ in includes(text)}
        roots.add(f"{ATTENTION[name].header}.h")
        headers = self.header_sets[name] = find_headers(self._tree, module.config, name, roots)
        entry = module_entry(
            self._resolved, module, texts, self._includers.values(), headers, self._output
        )
        self.entries[name] = entry
        self.modules.append(
            PlannedModule(
                name=name,
                library=library_file(self._resolved.request.manifest.namespace, name),
                entries=entry.entries,
                entry_source=entry.source,
                kernel_names=entry.kernel_names,
                public_header=entry.header,
                macros=entry.macros,
                receipt=module.spec.receipt,
                copts=module.config.flags_hip + entry.flags,
                kernels=tuple(range(first, len(self.kernels))),
                sources=module.planned_sources,
                headers=name,
                code_objects=module.kernels.code_objects,
                asm_tables=module.generated_files,
                stubs=tuple(lazy.stubs),
                entry_sources=lazy.entry_sources,
                directions=module.kernels.directions,
            )
        )

    def add_torch(self, module: GeneratedModule) -> None:
        """Add a torch module. The module of attention shares kernel instances with a library."""
        first = len(self.kernels)
        lazy = self._add_kernels(module)
        kernels = tuple(range(first, len(self.kernels)))
        planned, headers = plan_torch_module(
            self._resolved,
            module,
            self._output,
            kernels,
            lazy.entry_sources,
        )
        self.header_sets |= {found.name: found for found in headers}
        self.torch_modules.append(planned)

    def _add_kernels(self, module: GeneratedModule) -> LazySources:
        self._includers = {}
        lazy = LazySources(self._output, module.spec.name)
        groups: dict[str, list[KernelInstance]] = {}
        for kernel in module.kernels.kernels:
            helper = "_asm" if kernel.role.startswith("asm_") else ""
            groups.setdefault(f"{kernel.direction}{helper}", []).append(kernel)
        units: list[KernelUnit] = []
        for group, instances in sorted(groups.items()):
            units += self._add_group(module, group, instances, lazy)
        self.units += sorted(units, key=lambda unit: unit.name)
        return lazy

    def _add_group(
        self,
        module: GeneratedModule,
        group: str,
        instances: Sequence[KernelInstance],
        lazy: LazySources,
    ) -> Iterator[KernelUnit]:
        """Add the kernel instances of a direction, or its helper kernels, and yield their units.

        They are one unit unless their archs, flags or headers differ.
        """
        name, config = module.spec.name, module.config
        folder = self._output.below(name)
        texts = [folder.text(kernel.file) for kernel in instances]
        roots = [tuple(sorted({root for root, _ in includes(text)})) for text in texts]
        for kernel, text, names in zip(instances, texts, roots, strict=True):
            self._includers.setdefault(names, Includer(f"{name}/{kernel.file}", text))
        set_of = find_group_headers(self._tree, config, group, roots, self.header_sets)
        entries = lazy.add(group, instances, texts, roots)
        # AITER's entry of the library with these kernel instances.
        library = self._unchanged(TORCH_ATTENTION.get(config.name, config.name))
        if config.name in TORCH_ATTENTION:
            headers = [self.header_sets[set_name] for set_name in set_of.values()]
            config = kernel_config(self._tree, config, library, headers, texts)
        files = sorted({file for name in set_of.values() for file in self.header_sets[name].files})
        named = only_defines_name(self._tree.text(file) for file in files)
        grouped: dict[tuple[str, str], dict[int, tuple[KernelInstance, str]]] = {}
        first = len(self.kernels)
        for number, (kernel, text, names) in enumerate(zip(instances, texts, roots, strict=True)):
            key = _kernel_group_name(group, config, library, kernel), set_of[names]
            grouped.setdefault(key, {})[first + number] = kernel, text
        for (kernel_group, header_set), sources in grouped.items():
            batches = write_batches(
                sources,
                size=self._resolved.request.manifest.batch,
                named=named,
                folder=self._output,
                module=name,
            )
            yield KernelUnit(
                name=f"{name}/{kernel_group}" + ("" if header_set == group else f".{header_set}"),
                kernel_group=kernel_group,
                copts=config.flags_hip,
                headers=header_set,
                kernels=tuple(sources),
                batches=tuple(sorted(batches, key=lambda batch: batch.name)),
            )
        self.kernels += [
            replace(kernel, module=name, entry=entry)
            for kernel, entry in zip(instances, entries, strict=True)
        ]


def _kernel_group_name(
    group: str, config: ModuleConfig, library: ModuleConfig, kernel: KernelInstance
) -> str:
    """Return the name of the kernel group of a kernel instance: equal names mean equal compiles.

    The group is followed by the archs, unless the instance's name ends with its arch (gfx9 stands
    for several archs, no tag for all archs of the manifest), and by a digest of flags and include
    directories if they differ from those of AITER's entry for the library.
    """
    parts = [group]
    if not all(kernel.name.endswith(f"_{arch}") for arch in kernel.archs):
        parts += kernel.archs
    changed = (config.flags_hip, config.include_dirs)
    if changed != (library.flags_hip, library.include_dirs):
        parts.append(sha256_of_text(repr(changed))[:8])
    return "_".join(parts)
