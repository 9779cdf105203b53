"""Puts a plan's kernel instances, packages, headers and libraries together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, is_attention
from qola.aiter.includes import includes
from qola.aiter.missing_names import Includer
from qola.aiter.tree import ModuleConfig
from qola.codegen.ck.batches import batch_source, included, local_names
from qola.codegen.types import KernelInstance
from qola.files import sha256_of_text
from qola.folder import Folder
from qola.layout import library_file
from qola.plan.batches import batch_name, cut, in_order
from qola.plan.generated import GeneratedModule
from qola.plan.header_sets import header_set, header_sets
from qola.plan.lazy_sources import LazySources
from qola.plan.model import (
    HeaderSet,
    KernelFlags,
    KernelPackage,
    PlannedBatch,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
    TorchModule,
)
from qola.plan.module_entry import ModuleEntry, module_entry
from qola.plan.request import ResolvedRequest
from qola.plan.torch_module import compared, kernel_config, own_parts

_Names = tuple[str, ...]


class Assembly:
    """The attention part of a plan, to which modules are added one by one.

    Attributes:
        header_sets, packages: by name.
        kernels, modules: in the order added.
        batches: unsorted.
        torch_modules: in the order added.
        entries: what leaves each module's library.
    """

    def __init__(self, resolved: ResolvedRequest, output: Folder) -> None:
        self.header_sets: dict[str, HeaderSet] = {}
        self.packages: dict[str, KernelPackage] = {}
        self.kernels: list[PlannedKernel] = []
        self.modules: list[PlannedModule] = []
        self.batches: list[PlannedBatch] = []
        self.torch_modules: list[TorchModule] = []
        self.entries: list[tuple[str, ModuleEntry]] = []
        self._resolved = resolved
        self._tree = resolved.request.tree
        self._output = output
        self._unchanged = cache(self._tree.module)
        self._includers: dict[tuple[str, ...], Includer] = {}
        self._flags: dict[str, KernelFlags] = {}

    def add(self, module: GeneratedModule) -> None:
        """Add a module.

        Raises:
            PlanError: it has no kernels, or includes a header that is nowhere.
            AiterError: the tree lacks headers, or an entry point cannot be read.
        """
        spec = module.spec
        first = len(self.kernels)
        lazy = self._add_kernels(module)
        entry = self._entry(module)
        self.modules.append(
            PlannedModule(
                name=spec.name,
                library=library_file(self._resolved.request.manifest.namespace, spec.name),
                entries=entry.entries,
                entry_source=entry.source,
                kernel_names=entry.kernel_names,
                public_header=entry.header,
                macros=entry.macros,
                receipt=spec.receipt,
                copts=module.config.flags_hip + entry.flags,
                kernels=tuple(range(first, len(self.kernels))),
                sources=planned_sources(module),
                headers=spec.name,
                code_objects=module.kernels.code_objects,
                asm_tables=module.generated_files,
                stubs=tuple(lazy.stubs),
                entry_sources=lazy.entry_sources,
                directions=module.kernels.directions,
            )
        )

    def add_torch(self, module: GeneratedModule) -> None:
        """Add a torch module: AITER's own sources, and of attention the library's kernel instances.

        Raises:
            PlanError: it includes a header that is nowhere.
            AiterError: the tree lacks headers.
        """
        first = len(self.kernels)
        lazy = self._add_kernels(module)
        kernels = tuple(range(first, len(self.kernels)))
        own = own_parts(self._resolved, module, self._output)
        self.header_sets[module.spec.name] = own.headers
        packages = sorted({self.kernels[index].package for index in kernels})
        attention = is_attention(module.config.name)
        self.torch_modules.append(
            TorchModule(
                name=module.spec.name,
                entry=module.config.name,
                library=own.library,
                symbol=own.symbol,
                receipt=module.spec.receipt,
                copts=own.copts,
                kernels=kernels,
                kernel_flags=tuple(self._flags[name] for name in packages),
                sources=planned_sources(module),
                host_only=own.host_only,
                init=own.init,
                headers=module.spec.name,
                code_objects=module.kernels.code_objects,
                asm_tables=module.generated_files if attention else (),
                entry_sources=lazy.entry_sources,
                directions=module.kernels.directions,
                generated=() if attention else module.generated_files,
            )
        )

    def _add_kernels(self, module: GeneratedModule) -> LazySources:
        """Add a module's kernel instances, group by group."""
        self._includers = {}
        self._flags = {}
        lazy = LazySources(self._output, module.spec.name)
        groups: dict[str, list[KernelInstance]] = {}
        for kernel in module.kernels.kernels:
            groups.setdefault(_group(kernel), []).append(kernel)
        for group, instances in sorted(groups.items()):
            self._add_group(module, group, instances, lazy)
        return lazy

    def _entry(self, module: GeneratedModule) -> ModuleEntry:
        """Add the header set of a module's sources, and write what leaves its library."""
        name = module.spec.name
        folder = self._output.below(name)
        texts = {s.file: folder.text(s.file) for s in module.kernels.sources}
        roots = {name for text in texts.values() for name, _ in includes(text)}
        roots.add(f"{ATTENTION[name].header}.h")
        headers = header_set(self._tree, module.config, name, roots)
        self.header_sets[name] = headers
        entry = module_entry(
            self._resolved, module, texts, self._includers.values(), headers, self._output
        )
        self.entries.append((name, entry))
        return entry

    def _add_group(
        self,
        module: GeneratedModule,
        group: str,
        instances: Sequence[KernelInstance],
        lazy: LazySources,
    ) -> None:
        """Add the kernel instances of a group: they share a package."""
        name = module.spec.name
        folder = self._output.below(name)
        texts = [folder.text(k.file) for k in instances]
        roots = [tuple(sorted({name for name, _ in includes(text)})) for text in texts]
        for kernel, text, names in zip(instances, texts, roots, strict=True):
            self._includers.setdefault(names, Includer(f"{name}/{kernel.file}", text))
        set_of = header_sets(self._tree, module.config, group, roots, self.header_sets)
        entries = lazy.add(group, instances, texts, roots)
        config = module.config
        own = self._unchanged(TORCH_ATTENTION.get(config.name, config.name))
        if module.config.name in TORCH_ATTENTION:
            headers = [self.header_sets[set_of[includes_of]] for includes_of in set_of]
            config = kernel_config(self._tree, module.config, own, headers, texts)
        packages = [self._package_name(group, config, own, kernel) for kernel in instances]
        for package in packages:
            self.packages[package] = KernelPackage(config.flags_hip, group)
            self._flags[package] = compared(package, module.config, own, config)
        self.batches += self._batches(name, packages, instances, texts)
        self.kernels += [
            PlannedKernel(
                name=kernel.name,
                module=name,
                package=package,
                direction=kernel.direction,
                role=kernel.role,
                archs=kernel.archs,
                sha256=kernel.sha256,
                fields=dict(kernel.fields),
                variants=kernel.kept_by,
                headers=set_of[includes_of],
                entry=entry,
            )
            for kernel, package, includes_of, entry in zip(
                instances, packages, roots, entries, strict=True
            )
        ]

    def _batches(
        self,
        module: str,
        packages: Sequence[str],
        instances: Sequence[KernelInstance],
        texts: Sequence[str],
    ) -> Iterator[PlannedBatch]:
        """Write the batches of a group, whose kernel instances are about to be added."""
        size = self._resolved.request.manifest.batch
        index = {kernel.name: n for n, kernel in enumerate(instances, len(self.kernels))}
        alike: dict[tuple[str, _Names, _Names, _Names], list[KernelInstance]] = {}
        for kernel, package, text in zip(instances, packages, texts, strict=True):
            names = local_names(text) if size > 1 else None
            if names is not None:
                together = (package, kernel.archs, tuple(included([text])), names)
                alike.setdefault(together, []).append(kernel)
        for (package, _, needed, names), kernels in alike.items():
            for batch in cut(in_order(kernels), size):
                if len(batch) > 1:
                    members = [kernel.name for kernel in batch]
                    name = batch_name(batch)
                    file = f"{module}/kernels/batches/{name}.cpp"
                    text = batch_source(members, needed, names)
                    digest = self._output.write(file, text)
                    indices = tuple(index[member] for member in members)
                    yield PlannedBatch(name, package, indices, file, digest)

    @staticmethod
    def _package_name(
        group: str, config: ModuleConfig, own: ModuleConfig, kernel: KernelInstance
    ) -> str:
        """Name of the package: the group and whatever else decides the object.

        `own` is AITER's entry of the library that has the kernel instances.

        The archs are in it where the kernel instance's name does not end with the arch: gfx9 are
        those that the manifest has of several, and no tag at all means all archs of the manifest.
        """
        parts = [group]
        if not all(kernel.name.endswith(f"_{arch}") for arch in kernel.archs):
            parts += kernel.archs
        changed = (config.flags_hip, config.include_dirs)
        if changed != (own.flags_hip, own.include_dirs):
            parts.append(sha256_of_text(repr(changed))[:8])
        return "_".join(parts)


def planned_sources(module: GeneratedModule) -> tuple[PlannedSource, ...]:
    """Return what is compiled of a module beside its kernel instances."""
    return tuple(
        PlannedSource(
            Path(s.name).stem,
            f"{module.spec.name}/{s.file}",
            s.direction,
            s.role,
            s.sha256,
            s.archs,
        )
        for s in module.kernels.sources
    )


def _group(kernel: KernelInstance) -> str:
    """What shares a package: a direction; the v3 path's helper kernels are on their own."""
    return f"{kernel.direction}_asm" if kernel.role.startswith("asm_") else kernel.direction
