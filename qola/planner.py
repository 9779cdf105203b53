"""Makes a plan: brings a manifest, an AITER tree and CK's generators together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from qola import bundle_files, class_scope, codegen, module_kinds
from qola.aiter import AiterTree, ModuleConfig
from qola.attention import ATTENTION
from qola.codegen import Explanation, GeneratedSource, KernelInstance, KernelSet, Selection
from qola.codegen.asm_domain import domain_header
from qola.digest import sha256_of_text, write_if_changed
from qola.entry_points import ENTRIES, parameters
from qola.errors import AiterError, CodegenError, Finding, PlanError
from qola.estimate import load_costs
from qola.headers import closure, includes
from qola.include_dirs import include_dirs
from qola.lazy.stubs import Interface, Stub, entry_source, interface, stubs_source
from qola.manifest import ModuleSpec
from qola.plan import (
    EntryPoint,
    HeaderSet,
    KernelPackage,
    LazySource,
    OverlayHeader,
    Plan,
    PlannedFamily,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
    library_file,
)
from qola.plan_request import Request, check, configure, resolve_archs
from qola.precompile import warm_families
from qola.python_module import plan_python_module

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
        configs=bundle_files.configs(request.tree),
        licenses=bundle_files.licenses(request.tree),
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
        kernels = codegen.generate(
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
    precompiled = load_costs().precompiled
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


class _Lazy:
    """Writes the sources of a module's lazy library, group by group.

    Attributes:
        stubs: those written.
    """

    def __init__(self, output: Path, module: str) -> None:
        self.stubs: list[LazySource] = []
        self._output = output
        self._module = module
        self._rows = 0
        self._entries: dict[str, LazySource] = {}

    @property
    def entry_sources(self) -> tuple[LazySource, ...]:
        """The entry sources written, by name."""
        return tuple(sorted(self._entries.values(), key=lambda source: source.name))

    def add(
        self,
        group: str,
        instances: Sequence[KernelInstance],
        texts: Sequence[str],
        roots: Sequence[tuple[str, ...]],
    ) -> list[str]:
        """Write stubs and entry sources of a group; return the entry source of each instance.

        Args:
            group: its name.
            instances: the group's kernel instances, each of which gets a row for each arch.
            texts: their sources.
            roots: what each of them includes.

        Raises:
            CodegenError: a source has a form that is not served.
        """
        stubs = []
        names = []
        for kernel, text in zip(instances, texts, strict=True):
            found = interface(kernel.name, text)
            stubs.append(Stub(self._rows, len(kernel.archs), found))
            self._rows += len(kernel.archs)
            names.append(self._entry(kernel.role, found))
        # Thousands of sources include the same: one of each kind is read for it.
        kinds: dict[tuple[str, ...], str] = {}
        for names_of, text in zip(roots, texts, strict=True):
            kinds.setdefault(names_of, text)
        text = stubs_source(stubs, kinds.values())
        self.stubs.append(self._write(group, f"stubs/{group}.cpp", text))
        return names

    def _entry(self, role: str, of: Interface) -> str:
        text = entry_source(of)
        if text not in self._entries:
            arch = re.search(r"ck_tile::(\w+)_t", of.written)
            name = f"{role}_{arch[1]}" if arch else role
            if any(source.name == name for source in self._entries.values()):
                # Of several for a role and an arch, the first in the plan has the plain name.
                name = f"{name}_{sha256_of_text(text)[:8]}"
            self._entries[text] = self._write(name, f"entries/{name}.cpp", text)
        return self._entries[text].name

    def _write(self, name: str, file: str, text: str) -> LazySource:
        place = f"{self._module}/{file}"
        return LazySource(name, place, write_if_changed(self._output / place, text))


def _header_sets(
    tree: AiterTree,
    config: ModuleConfig,
    group: str,
    roots: Sequence[tuple[str, ...]],
    found: dict[str, HeaderSet],
) -> dict[tuple[str, ...], str]:
    """Add the header set of a group to `found`, and those of its parts that include different ones.

    Args:
        roots: what each kernel instance includes.

    Returns:
        The name of the header set for what a kernel instance includes.
    """
    found[group] = _header_set(tree, config, group, {name for some in roots for name in some})
    distinct = sorted(set(roots))
    if len(distinct) == 1:
        return {distinct[0]: group}
    names = {some: f"{group}_{number}" for number, some in enumerate(distinct)}
    for some, name in names.items():
        found[name] = _header_set(tree, config, name, some)
    return names


def _header_set(
    tree: AiterTree, config: ModuleConfig, name: str, includes_of: Iterable[str]
) -> HeaderSet:
    dirs = include_dirs(tree, config)
    roots = set(includes_of)
    headers = closure(tree.root, dirs, sorted(roots))
    if not headers:
        raise AiterError(
            Finding(
                f"headers of {name}",
                f"none of {', '.join(sorted(roots)) or 'no includes'} below {', '.join(dirs)}",
                "the headers that generated sources include",
                "use an AITER tree with its submodules (git submodule update --init --recursive)",
            )
        )
    # A directory none of the headers comes from needs no -I.
    used = tuple(d for d in dirs if any(header.startswith(d + "/") for header in headers))
    return HeaderSet(name, used, headers)


def _overlay(
    tree: AiterTree, headers: HeaderSet, output: Path, module: str
) -> tuple[OverlayHeader, ...] | None:
    """Writes the headers that have to be changed to be precompiled.

    Returns:
        Them; None where one has a form that cannot be changed, so that none may be precompiled.
    """
    changed = []
    for file in headers.files:
        text = (tree.root / file).read_text(encoding="utf-8", errors="replace")
        if not class_scope.specialisations(text):
            continue
        copy = class_scope.with_constraints(text)
        folder = next(d for d in headers.include_dirs if file.startswith(d + "/"))
        name = file.removeprefix(folder + "/")
        if copy is None:
            return None
        place = f"{module}/overlay/{name}"
        (output / place).parent.mkdir(parents=True, exist_ok=True)
        write_if_changed(output / place, copy)
        changed.append(OverlayHeader(name, place, sha256_of_text(copy)))
    return tuple(changed)


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


def _inputs(
    tree: AiterTree, header_sets: Iterable[HeaderSet], sources: Iterable[str]
) -> tuple[str, ...]:
    """Files of the tree a plan depends on: configuration, generators, sources, every header."""
    files = {file for headers in header_sets for file in headers.files}
    files.add("aiter/jit/optCompilerConfig.json")
    files.update(f for f in ("aiter/jit/core.py", "aiter/_version.py") if (tree.root / f).is_file())
    files.update(sources)
    for directory in (
        tree.fmha_dir,
        f"{tree.csrc_dir}/cpp_itfs",
        f"{tree.csrc_dir}/py_itfs_cu",
        tree.hsa_dir,
    ):
        files.update(
            path.relative_to(tree.root).as_posix() for path in (tree.root / directory).rglob("*.py")
        )
    return tuple(sorted(files))
