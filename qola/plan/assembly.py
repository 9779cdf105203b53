"""Puts a plan's kernel instances, packages, headers and libraries together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.aiter.includes import includes
from qola.aiter.missing_headers import Includer
from qola.aiter.tree import ModuleConfig
from qola.codegen.types import KernelFamily, KernelInstance
from qola.files import sha256_of_text
from qola.layout import library_file
from qola.plan.generated import GeneratedModule
from qola.plan.header_sets import header_set, header_sets, overlay
from qola.plan.lazy_sources import LazySources
from qola.plan.model import (
    HeaderSet,
    KernelPackage,
    PlannedFamily,
    PlannedFile,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
)
from qola.plan.module_entry import ModuleEntry, module_entry
from qola.plan.request import ResolvedRequest
from qola.plan.warm_headers import load_policy, warm_families

ARCH_NEUTRAL = frozenset({"fwd_splitkv", "batch_prefill", "bwd_asm"})
"""Groups of instances whose sources name no arch: the same one serves gfx942 and gfx950."""


class Assembly:
    """The attention part of a plan, to which modules are added one by one.

    Attributes:
        header_sets, packages: by name.
        kernels, modules: in the order added.
        families: unsorted.
        entries: what leaves each module's library.
    """

    def __init__(self, resolved: ResolvedRequest, output: Path) -> None:
        self.header_sets: dict[str, HeaderSet] = {}
        self.packages: dict[str, KernelPackage] = {}
        self.kernels: list[PlannedKernel] = []
        self.modules: list[PlannedModule] = []
        self.families: list[PlannedFamily] = []
        self.entries: list[tuple[str, ModuleEntry]] = []
        self._resolved = resolved
        self._tree = resolved.request.tree
        self._output = output
        self._policy = load_policy()
        self._unchanged = cache(self._tree.module)
        self._includers: dict[tuple[str, ...], Includer] = {}

    def add(self, module: GeneratedModule) -> None:
        """Add a module.

        Raises:
            PlanError: it has no kernels, or includes a header that is nowhere.
            AiterError: the tree lacks headers, or an entry point cannot be read.
        """
        spec = module.spec
        self._includers = {}
        first = len(self.kernels)
        lazy = LazySources(self._output, spec.name)
        warm = warm_families(module.kernels.families, self._policy)
        groups: dict[str, list[KernelInstance]] = {}
        for kernel in module.kernels.kernels:
            groups.setdefault(_group(kernel), []).append(kernel)
        for group, instances in sorted(groups.items()):
            self._add_group(module, group, instances, lazy, warm)
        sources = tuple(
            PlannedSource(
                Path(s.name).stem, f"{spec.name}/{s.file}", s.direction, s.role, s.sha256, s.archs
            )
            for s in module.kernels.sources
        )
        entry = self._entry(module)
        self.modules.append(
            PlannedModule(
                name=spec.name,
                library=library_file(self._resolved.request.manifest.namespace, spec.name),
                entries=entry.entries,
                entry_source=entry.source,
                public_header=entry.header,
                macros=entry.macros,
                receipt=spec.receipt,
                copts=module.config.flags_hip + entry.flags,
                kernels=tuple(range(first, len(self.kernels))),
                sources=sources,
                headers=spec.name,
                code_objects=module.kernels.code_objects,
                asm_tables=tuple(
                    PlannedFile(table.name, f"{spec.name}/{table.file}", table.sha256)
                    for table in module.kernels.tables
                ),
                stubs=tuple(lazy.stubs),
                entry_sources=lazy.entry_sources,
                directions=module.kernels.directions,
            )
        )

    def _entry(self, module: GeneratedModule) -> ModuleEntry:
        """Add the header set of a module's sources, and write what leaves its library."""
        name = module.spec.name
        folder = self._output / name
        texts = {s.file: (folder / s.file).read_text("utf-8") for s in module.kernels.sources}
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
        warm: Mapping[str, KernelFamily],
    ) -> None:
        """Add the kernel instances of a group: they share a package."""
        name = module.spec.name
        texts = [(self._output / name / k.file).read_text("utf-8") for k in instances]
        roots = [tuple(sorted({name for name, _ in includes(text)})) for text in texts]
        for kernel, text, names in zip(instances, texts, roots, strict=True):
            self._includers.setdefault(names, Includer(f"{name}/{kernel.file}", text))
        set_of = header_sets(self._tree, module.config, group, roots, self.header_sets)
        entries = lazy.add(group, instances, texts, roots)
        package = self._package_name(group, module.config)
        changed = overlay(self._tree, self.header_sets[group], self._output, name)
        self.packages[package] = KernelPackage(
            module.config.flags_hip, group, changed is not None, changed or ()
        )
        usable = warm if changed is not None else {}
        for family in {k.family for k in instances} & usable.keys():
            of = usable[family]
            file = f"{name}/{of.file}"
            self.families.append(PlannedFamily(of.name, package, of.sister, file, of.sha256))
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
                family=kernel.family if kernel.family in usable else "",
            )
            for kernel, includes_of, entry in zip(instances, roots, entries, strict=True)
        ]

    def _package_name(self, group: str, config: ModuleConfig) -> str:
        """Package of the kernel repository: the group and whatever else decides the objects.

        Two manifests that agree on it meet in one package, and so in one target per kernel. A
        kernel instance of ARCH_NEUTRAL groups is compiled for all archs of its manifest; elsewhere
        the instance's name has the arch in it.
        """
        parts = [group]
        if group in ARCH_NEUTRAL:
            parts += self._resolved.archs
        own = self._unchanged(config.name)
        changed = (config.flags_hip, config.include_dirs)
        if changed != (own.flags_hip, own.include_dirs):
            parts.append(sha256_of_text(repr(changed))[:8])
        return "_".join(parts)


def _group(kernel: KernelInstance) -> str:
    """What shares a package: a direction; the v3 path's helper kernels are on their own."""
    return f"{kernel.direction}_asm" if kernel.role.startswith("asm_") else kernel.direction
