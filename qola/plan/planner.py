"""Makes a plan: brings a manifest, an AITER tree and CK's generators together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, ENTRIES, parameters
from qola.aiter.includes import include_dirs, includes
from qola.aiter.tree import AiterTree, ModuleConfig, configs, licenses
from qola.codegen.asm.domain import domain_header
from qola.codegen.generate import generate
from qola.codegen.types import Explanation, GeneratedSource, KernelInstance, KernelSet, Selection
from qola.errors import CodegenError, Finding, PlanError
from qola.files import sha256_of_text, write_if_changed
from qola.layout import library_file
from qola.manifest.load import ModuleSpec
from qola.plan.header_sets import _header_set, _header_sets, _overlay
from qola.plan.lazy_sources import _Lazy
from qola.plan.model import (
    EntryPoint,
    HeaderSet,
    KernelPackage,
    Plan,
    PlannedFamily,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
)
from qola.plan.python_module import plan_python_module
from qola.plan.request import Request, check, configure, resolve_archs
from qola.plan.warm_headers import load_policy, warm_families
from qola.plan.watched import _inputs

__all__ = ["Request", "build_plan", "explain", "include_dirs"]

ARCH_NEUTRAL = frozenset({"fwd_splitkv", "batch_prefill", "bwd_asm"})
"""Groups of instances whose sources name no arch: the same one serves gfx942 and gfx950."""

ASM_DOMAIN = "qola_asm_domain.h"
"""Generated header that tells which problems the manifest gives to assembly kernels."""


@dataclass(frozen=True)
class _Generated:
    """A module with what its generators produced."""

    spec: ModuleSpec
    config: ModuleConfig
    kernels: KernelSet


def build_plan(
    request: Request, output: Path, *, progress: Callable[[str], None] = lambda _: None
) -> Plan:
    """Plans a manifest and writes the sources it needs.

    Args:
        request: what to plan.
        output: existing directory; gets <module>/kernels and <module>/dispatch.
        progress: called with a line when a long step begins.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but cannot be planned yet.
        AiterError: the tree cannot be read.
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
    """
    warnings = [*request.manifest.warnings, *check(request)]
    archs = resolve_archs(request)
    progress(f"{request.name}: generating kernel instances for {', '.join(archs)}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        # Each module's generators run in processes of their own.
        generated = list(
            pool.map(lambda spec: _generate(request, spec, archs, output), _attention(request))
        )
    warnings += [w for module in generated for w in module.kernels.warnings]
    header_sets, packages, kernels, modules, families = _assemble(request, archs, generated, output)
    python_modules = tuple(
        plan_python_module(
            request.tree,
            configure(request, spec),
            spec.drop_srcs,
            output,
            request.manifest.place("modules", spec.index, "name"),
        )
        for spec in request.manifest.modules
        if spec.name not in ATTENTION
    )
    return Plan(
        name=request.name,
        namespace=request.manifest.namespace,
        archs=archs,
        manifest=request.manifest.to_dict(),
        aiter={
            "generation": request.tree.generation,
            "id": request.aiter_id,
            "patches": request.aiter_patches,
            "version": request.tree.version,
        },
        packages=packages,
        header_sets=header_sets,
        kernels=kernels,
        modules=modules,
        families=families,
        python_modules=python_modules,
        warnings=tuple(warnings),
        inputs=_inputs(
            request.tree,
            header_sets,
            [
                *(
                    src
                    for m in generated
                    for src in (*m.config.srcs, *(c.file for c in m.kernels.code_objects))
                    if (request.tree.root / src).is_file()
                ),
                *(file for m in python_modules for file in m.inputs),
            ],
        ),
        configs=configs(request.tree),
        licenses=licenses(request.tree),
    )


def explain(
    request: Request, output: Path, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[tuple[ModuleSpec, tuple[Explanation, ...]], ...]:
    """Says of every kernel of the receipts in use why it is in the plan or not.

    Args:
        request: what to plan.
        output: existing directory; the sources are generated there, as for a plan.
        progress: called with a line when a long step begins.

    Returns:
        Each module of the manifest with its explanations, in CK's order.

    Raises:
        QolaError: as build_plan.
    """
    check(request)
    archs = resolve_archs(request)
    progress(f"{request.name}: comparing with every kernel of the receipts in use")
    return tuple(
        (spec, _generate(request, spec, archs, output, explain=True).kernels.explanations)
        for spec in _attention(request)
    )


def _attention(request: Request) -> list[ModuleSpec]:
    return [spec for spec in request.manifest.modules if spec.name in ATTENTION]


def _generate(
    request: Request,
    spec: ModuleSpec,
    archs: tuple[str, ...],
    output: Path,
    *,
    explain: bool = False,
) -> _Generated:
    config = configure(request, spec)
    forward = ATTENTION[spec.name].direction == "fwd"
    selection = Selection(
        receipt=spec.receipt,
        variants=request.manifest.fwd_variants if forward else request.manifest.bwd_variants,
        drop_directions=frozenset(spec.drop_directions),
        asm=spec.hsa_subdirs is None or bool(spec.hsa_subdirs),
    )
    try:
        kernels = generate(
            request.tree, config, selection, archs, output / spec.name, explain=explain
        )
    except CodegenError as error:
        raise CodegenError(
            [replace(f, place=_place(request, spec, f.place)) for f in error.findings], error.title
        ) from None
    own = _own_sources(request.tree, spec, config, output)
    twice = {source.name for source in own} & {source.name for source in kernels.sources}
    if twice or len({source.name for source in own}) < len(own):
        raise PlanError(
            Finding(
                f"{spec.name}.srcs",
                f"{', '.join(sorted(twice or {s.name for s in own}))}: two sources of one name",
                "sources whose names, without suffix, differ from each other and from those "
                "that generators write",
                "drop_srcs leaves one out",
            )
        )
    if kernels.code_objects:
        header = domain_header(spec.name, selection.variants)
        (output / spec.name / "include").mkdir(exist_ok=True)
        write_if_changed(output / spec.name / "include" / ASM_DOMAIN, header)
    return _Generated(spec, config, replace(kernels, sources=kernels.sources + own))


def _place(request: Request, spec: ModuleSpec, place: str) -> str:
    """The place of a generator's finding, with the manifest's file where it means the manifest."""
    if place == "drop_directions":
        return request.manifest.place("modules", spec.index, place)
    return f"{request.manifest.file} {place}" if place.startswith("[[") else place


def _own_sources(
    tree: AiterTree, spec: ModuleSpec, config: ModuleConfig, output: Path
) -> tuple[GeneratedSource, ...]:
    """Takes over the sources AITER's entry names: copies, since cc_library takes no .cu file.

    Raises:
        PlanError: a source outside of the tree, or two that would become one target.
    """
    for src in config.srcs:
        path = tree.root / src
        if not path.resolve().is_relative_to(tree.root.resolve()):
            raise PlanError(
                Finding(f"{spec.name}.srcs", src, "a source within the AITER tree", f"remove {src}")
            )
    direction = ATTENTION[spec.name].direction
    sources = []
    for file in module_kinds.sources(tree, config, spec.drop_srcs):
        name = f"{Path(file).stem}.cpp"
        text = (tree.root / file).read_text(encoding="utf-8")
        digest = write_if_changed(output / spec.name / "sources" / name, text)
        sources.append(GeneratedSource(name, f"sources/{name}", digest, direction, "entry"))
    return tuple(sources)


def _assemble(
    request: Request, archs: tuple[str, ...], generated: Sequence[_Generated], output: Path
) -> tuple[
    tuple[HeaderSet, ...],
    dict[str, KernelPackage],
    tuple[PlannedKernel, ...],
    tuple[PlannedModule, ...],
    tuple[PlannedFamily, ...],
]:
    precompiled = load_policy()
    families: list[PlannedFamily] = []
    header_sets: dict[str, HeaderSet] = {}
    packages: dict[str, KernelPackage] = {}
    kernels: list[PlannedKernel] = []
    modules: list[PlannedModule] = []
    for module in generated:
        copts = module.config.flags_hip
        unchanged = request.tree.module(module.spec.name)
        own: list[int] = []
        lazy = _Lazy(output, module.spec.name)
        warm = warm_families(module.kernels.families, precompiled)
        for group in sorted({_group(kernel) for kernel in module.kernels.kernels}):
            instances = [k for k in module.kernels.kernels if _group(k) == group]
            texts = [(output / module.spec.name / k.file).read_text("utf-8") for k in instances]
            roots = [tuple(sorted({name for name, _ in includes(text)})) for text in texts]
            set_of = _header_sets(request.tree, module.config, group, roots, header_sets)
            entries = lazy.add(group, instances, texts, roots)
            package = _package_name(group, archs, module.config, unchanged)
            overlay = _overlay(request.tree, header_sets[group], output, module.spec.name)
            packages[package] = KernelPackage(
                copts, group, precompile=overlay is not None, overlay=overlay or ()
            )
            usable = warm if overlay is not None else {}
            families += [
                PlannedFamily(
                    name=usable[name].name,
                    package=package,
                    sister=usable[name].sister,
                    file=f"{module.spec.name}/{usable[name].file}",
                    sha256=usable[name].sha256,
                )
                for name in sorted({k.family for k in instances} & usable.keys())
            ]
            for kernel, includes_of, entry in zip(instances, roots, entries, strict=True):
                own.append(len(kernels))
                kernels.append(
                    PlannedKernel(
                        name=kernel.name,
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
                )
        sources = tuple(
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
        entry_source = ATTENTION[module.spec.name].entry_source
        header_sets[module.spec.name] = _header_set(
            request.tree,
            module.config,
            module.spec.name,
            {
                f"{entry_source}.h",
                *(
                    name
                    for source in sources
                    for name, _ in includes((output / source.file).read_text("utf-8"))
                ),
            },
        )
        modules.append(
            PlannedModule(
                name=module.spec.name,
                library=library_file(request.manifest.namespace, module.spec.name),
                entries=_entry_points(request, module),
                entry_source=entry_source,
                receipt=module.spec.receipt,
                copts=copts,
                kernels=tuple(own),
                sources=sources,
                headers=module.spec.name,
                code_objects=module.kernels.code_objects,
                stubs=tuple(lazy.stubs),
                entry_sources=lazy.entry_sources,
            )
        )
    ordered = tuple(header_sets[name] for name in sorted(header_sets))
    return (
        ordered,
        dict(sorted(packages.items())),
        tuple(kernels),
        tuple(modules),
        tuple(sorted(families, key=lambda family: (family.package, family.name))),
    )


def _entry_points(request: Request, module: _Generated) -> tuple[EntryPoint, ...]:
    """Returns the entry points of the directions that have kernel instances.

    Raises:
        PlanError: no direction has any.
        AiterError: an entry point has a form that is not served.
    """
    served = {kernel.direction for kernel in module.kernels.kernels}
    if module.kernels.code_objects:
        # Assembly kernels alone can serve a direction, too.
        served.add(ATTENTION[module.spec.name].direction)
    entries = tuple(
        EntryPoint(entry.name, parameters(request.tree, entry))
        for direction, entry in ENTRIES.items()
        if direction in served
    )
    if not entries:
        raise PlanError(
            Finding(
                request.manifest.place("modules", module.spec.index, "drop_directions"),
                f"{module.spec.name} without any kernel instance",
                "at least one direction with kernels",
                "drop fewer directions, or remove the module",
            )
        )
    return entries


def _group(kernel: KernelInstance) -> str:
    """What shares a package: a direction; the v3 path's helper kernels are on their own."""
    return f"{kernel.direction}_asm" if kernel.role.startswith("asm_") else kernel.direction


def _package_name(
    group: str, archs: tuple[str, ...], config: ModuleConfig, own: ModuleConfig
) -> str:
    """Package of the kernel repository: the group and whatever else decides the objects.

    Two manifests that agree on it meet in one package, and so in one target per kernel. A kernel
    instance of ARCH_NEUTRAL groups is compiled for all archs of its manifest; elsewhere the
    instance's name has the arch in it.
    """
    parts = [group]
    if group in ARCH_NEUTRAL:
        parts += archs
    changed = (config.flags_hip, config.include_dirs)
    if changed != (own.flags_hip, own.include_dirs):
        parts.append(sha256_of_text(repr(changed))[:8])
    return "_".join(parts)
