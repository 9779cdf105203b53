"""Makes a plan from a manifest, an AITER tree and its generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, is_attention
from qola.aiter.includes import includes
from qola.aiter.missing_names import ARCH_HEADER, Includer, missing_macros
from qola.aiter.proven_faults import KernelFacts, find_proven_faults
from qola.aiter.tree import ModuleConfig, configs, licenses
from qola.codegen.ck.batches import only_defines_name
from qola.codegen.types import Explanation, KernelInstance
from qola.common.folder import Folder
from qola.common.processes import thread_pool
from qola.common.version import docs_url
from qola.manifest.constants import PARTLY_TESTED_ARCHS, TESTED_ARCHS
from qola.manifest.load import ModuleSpec
from qola.plan.batches import write_batches
from qola.plan.functions import plan_functions
from qola.plan.generate import (
    GeneratedModule,
    generate_further,
    generate_module,
    launch_findings,
)
from qola.plan.inputs import calling_files, find_group_headers, input_files
from qola.plan.model import (
    HeaderSet,
    KernelUnit,
    Plan,
    PlannedAiter,
    TorchModule,
)
from qola.plan.module_entry import LibraryPlan, check_agreement, plan_library
from qola.plan.python_modules import kernel_config, plan_python_module, plan_torch_module
from qola.plan.request import Request, ResolvedRequest
from qola.plan.resolve import resolve
from qola.plan.stubs import LazySources
from qola.plan.triton_kernels import plan_triton
from qola_base.errors import Finding, PlanError, QolaError
from qola_base.files import sha256_of_text
from qola_base.progress import log

_CK_ARCHS = (*TESTED_ARCHS, *PARTLY_TESTED_ARCHS)
"""Archs that Composable Kernel may know: one of each family."""


def plan(request: Request) -> Plan:
    """Return the plan of a request from the cache, or make it in memory."""
    found: Plan = _find_cached(request, "plan", Plan, lambda: make_plan(request, Folder()))
    return found


def make_plan(request: Request, output: Folder) -> Plan:
    """Check a request, log it and plan it; write the generated sources to `output`."""
    resolved = resolve(request)
    archs = ", ".join(resolved.archs)
    log.info(f"{request.name}: generating kernel instances for {archs}")
    return build_plan(resolved, output)


def explain(request: Request) -> tuple[tuple[ModuleSpec, tuple[Explanation, ...]], ...]:
    """Explain for every kernel of the receipts in use why it is in the plan or not.

    Returns:
        Each attention module of the manifest with its explanations, in CK's order.
    """

    def compute() -> object:
        resolved = resolve(request)
        log.info(f"{request.name}: comparing with every kernel of the receipts in use")
        modules = (
            generate_module(resolved, module, Folder(), explain=True)
            for module in resolved.attention
        )
        return [(module.spec.index, module.kernels.explanations) for module in modules]

    kind = tuple[tuple[int, tuple[Explanation, ...]], ...]
    specs = {spec.index: spec for spec in request.manifest.modules}
    found = _find_cached(request, "explanations", kind, compute)
    return tuple((specs[index], explanations) for index, explanations in found)


def _find_cached(request: Request, name: str, kind: Any, compute: Callable[[], Any]) -> Any:
    """Return an answer of a type about a request from the cache, or compute it."""
    manifest = request.manifest
    try:
        chosen = request.resolve_archs()
    except QolaError:
        # `resolve` reports other errors first.
        return compute()
    pins = (request.aiter_patches, request.patches)
    question = {
        "kind": name,
        "name": request.name,
        "manifest": [manifest.file, manifest.text, manifest.to_json()],
        "modules": [spec.index for spec in manifest.modules],
        "spec": request.spec.to_json(),
        "archs": [request.default_archs, chosen],
        "rocm_version": request.rocm_version,
        "aiter": request.aiter_id,
        "patches": [[pin.to_json() for pin in patches] for patches in pins],
        "triton": dict(request.triton),
    }
    with request.answers as answers:
        return answers.find(question, kind, compute)


def build_plan(resolved: ResolvedRequest, output: Folder) -> Plan:
    """Plan a manifest and write the sources it needs, in a directory of `output` for each module.

    Raises:
        PlanError: a module has no kernels, or kernels that nothing launches, or needs something
            that a plan does not support.
        AiterError: the tree cannot be read.
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
    """
    request = resolved.request
    tree = request.tree
    with thread_pool(2) as pool:
        # Each module's generators run in processes of their own.
        further = pool.map(partial(generate_further, resolved, output=output), resolved.further)
        attention = (*resolved.attention, *resolved.torch)
        generated = list(pool.map(partial(generate_module, resolved, output=output), attention))
        others = list(further)
    findings = [finding for module in generated for finding in launch_findings(tree, module)]
    if dead := [finding for finding in findings if finding.severity == "error"]:
        raise PlanError(dead)
    made = _Assembly(resolved, output)
    for module in (*generated, *others):
        if module.config.name in ATTENTION:
            made.add(module)
        elif module.torch or is_attention(module.config.name):
            made.add_torch(module)
    check_agreement(made.libraries)
    if unknown := list(_unknown_to_ck(resolved, made)):
        raise PlanError(unknown)
    findings += _proven_faults(resolved, made)
    python_modules = tuple(
        plan_python_module(resolved, module, output) for module in others if not module.torch
    )
    functions, function_inputs = plan_functions(resolved, output)
    python_modules += functions
    header_sets = tuple(made.header_sets[name] for name in sorted(made.header_sets))
    sources = [file for module in (*generated, *others) for file in module.tree_files]
    sources += [file for python in python_modules for file in python.inputs]
    aiter_python = calling_files(tree) if request.manifest.for_aiter else {}
    aiter_python |= function_inputs
    sources += aiter_python
    return Plan(
        name=request.name,
        namespace=request.manifest.namespace,
        archs=resolved.archs,
        manifest=request.manifest.to_json(),
        aiter=PlannedAiter(tree.generation, request.aiter_id, tree.version, request.aiter_patches),
        header_sets=header_sets,
        kernels=tuple(made.kernels),
        units=tuple(made.units),
        modules=tuple(library.module for library in made.libraries),
        python_modules=python_modules,
        torch_modules=tuple(made.torch_modules),
        triton=plan_triton(request.manifest, request.triton, resolved.archs, output),
        warnings=(
            *resolved.warnings,
            *findings,
            *(warning for library in made.libraries for warning in library.warnings),
        ),
        inputs=input_files(tree, header_sets, sources),
        configs=configs(tree, (module.config for module in resolved.modules)),
        licenses=licenses(tree),
        aiter_python=aiter_python,
    )


class _Assembly:
    """The part of a plan with kernel instances, to which modules are added one by one.

    Attributes:
        header_sets: by name.
        units: of the modules in their order, by name.
    """

    def __init__(self, resolved: ResolvedRequest, output: Folder) -> None:
        self.header_sets: dict[str, HeaderSet] = {}
        self.kernels: list[KernelInstance] = []
        self.units: list[KernelUnit] = []
        self.libraries: list[LibraryPlan] = []
        self.torch_modules: list[TorchModule] = []
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
        kernels, lazy = self._add_kernels(module)
        library = plan_library(
            self._resolved, module, self._output, kernels, lazy, self._includers.values()
        )
        self.header_sets[library.headers.name] = library.headers
        self.libraries.append(library)

    def add_torch(self, module: GeneratedModule) -> None:
        """Add a torch module. The module of attention shares kernel instances with a library."""
        kernels, lazy = self._add_kernels(module)
        planned, headers = plan_torch_module(
            self._resolved, module, self._output, kernels, lazy.entry_sources
        )
        self.header_sets |= {found.name: found for found in headers}
        self.torch_modules.append(planned)

    def _add_kernels(self, module: GeneratedModule) -> tuple[tuple[int, ...], LazySources]:
        """Add the kernel instances of a module; return their indices and its lazy form."""
        first = len(self.kernels)
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
        return tuple(range(first, len(self.kernels))), lazy

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


def _unknown_to_ck(resolved: ResolvedRequest, made: _Assembly) -> Iterator[Finding]:
    """Find archs of planned kernels for which Composable Kernel's headers cannot be compiled."""
    request = resolved.request
    compiled = {
        (arch, unit.headers)
        for unit in made.units
        for kernel in (made.kernels[index] for index in unit.kernels)
        if not kernel.role.startswith("asm_")
        for arch in kernel.archs
    }
    for arch in sorted({arch for arch, _ in compiled}):
        names = {name for planned, name in compiled if planned == arch}
        files = sorted({file for name in names for file in made.header_sets[name].files})
        for missing in missing_macros(request.tree, files, _CK_ARCHS, arch)[:1]:
            others = [name for name in resolved.archs if name != arch]
            yield Finding(
                request.manifest.place("build", "architectures"),
                f"{arch}: {missing.place} uses {missing.name}, which {ARCH_HEADER} of this "
                "Composable Kernel does not define for it",
                "archs for which the kernels of this AITER can be compiled",
                f"--arch {','.join(others or TESTED_ARCHS)}, or an AITER with a later Composable "
                f"Kernel; {docs_url('guide/assembly-only.md')} builds without it",
            )


def _proven_faults(resolved: ResolvedRequest, made: _Assembly) -> list[Finding]:
    """Return warnings for the planned kernels with a proven fault.

    Raises:
        PlanError: the manifest refuses such kernels.
    """
    request = resolved.request
    kernels = [
        KernelFacts(kernel.name, kernel.archs, "", kernel.direction, kernel.fields)
        for kernel in made.kernels
    ]
    modules = (*(library.module for library in made.libraries), *made.torch_modules)
    objects = (code for module in modules for code in module.code_objects)
    kernels += [KernelFacts(code.key, (code.arch,), code.sha256) for code in objects]
    refuse = request.manifest.refuse_proven_faults
    found = list(find_proven_faults(request.tree, resolved.archs, kernels, refuse=refuse))
    if found and refuse:
        raise PlanError(found)
    return found
