"""Puts a plan's kernel instances, packages, headers and libraries together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from qola.aiter.attention import ATTENTION, ENTRIES, parameters
from qola.aiter.includes import includes
from qola.aiter.tree import ModuleConfig
from qola.codegen.types import KernelFamily, KernelInstance
from qola.errors import Finding, PlanError
from qola.files import sha256_of_text
from qola.layout import library_file
from qola.plan.generated import GeneratedModule
from qola.plan.header_sets import header_set, header_sets, overlay
from qola.plan.lazy_sources import LazySources
from qola.plan.model import (
    EntryPoint,
    HeaderSet,
    KernelPackage,
    PlannedFamily,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
)
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
    """

    def __init__(self, resolved: ResolvedRequest, output: Path) -> None:
        self.header_sets: dict[str, HeaderSet] = {}
        self.packages: dict[str, KernelPackage] = {}
        self.kernels: list[PlannedKernel] = []
        self.modules: list[PlannedModule] = []
        self.families: list[PlannedFamily] = []
        self._resolved = resolved
        self._tree = resolved.request.tree
        self._output = output
        self._policy = load_policy()
        self._unchanged = cache(self._tree.module)

    def add(self, module: GeneratedModule) -> None:
        """Add a module.

        Raises:
            PlanError: it has no kernels.
            AiterError: the tree lacks headers, or an entry point has a form that is not served.
        """
        spec = module.spec
        first = len(self.kernels)
        lazy = LazySources(self._output, spec.name)
        warm = warm_families(module.kernels.families, self._policy)
        groups: dict[str, list[KernelInstance]] = {}
        for kernel in module.kernels.kernels:
            groups.setdefault(_group(kernel), []).append(kernel)
        for group, instances in sorted(groups.items()):
            self._add_group(module, group, instances, lazy, warm)
        entry_source = ATTENTION[spec.name].entry_source
        sources = tuple(
            PlannedSource(
                Path(s.name).stem, f"{spec.name}/{s.file}", s.direction, s.role, s.sha256, s.archs
            )
            for s in module.kernels.sources
        )
        texts = [(self._output / source.file).read_text("utf-8") for source in sources]
        roots = {f"{entry_source}.h", *(name for text in texts for name, _ in includes(text))}
        self.header_sets[spec.name] = header_set(self._tree, module.config, spec.name, roots)
        self.modules.append(
            PlannedModule(
                name=spec.name,
                library=library_file(self._resolved.request.manifest.namespace, spec.name),
                entries=self._entry_points(module),
                entry_source=entry_source,
                receipt=spec.receipt,
                copts=module.config.flags_hip,
                kernels=tuple(range(first, len(self.kernels))),
                sources=sources,
                headers=spec.name,
                code_objects=module.kernels.code_objects,
                stubs=tuple(lazy.stubs),
                entry_sources=lazy.entry_sources,
            )
        )

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

    def _entry_points(self, module: GeneratedModule) -> tuple[EntryPoint, ...]:
        """Return the entry points of the directions that have kernel instances."""
        served = {kernel.direction for kernel in module.kernels.kernels}
        if module.kernels.code_objects:
            # Assembly kernels alone can serve a direction, too.
            served.add(ATTENTION[module.spec.name].direction)
        entries = tuple(
            EntryPoint(entry.name, parameters(self._tree, entry))
            for direction, entry in ENTRIES.items()
            if direction in served
        )
        if not entries:
            raise PlanError(
                Finding(
                    self._resolved.place(module.spec, "drop_directions"),
                    f"{module.spec.name} without any kernel instance",
                    "at least one direction with kernels",
                    "drop fewer directions, or remove the module",
                )
            )
        return entries

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
