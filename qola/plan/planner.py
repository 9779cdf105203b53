"""Makes a plan from a manifest, an AITER tree and its generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from qola.aiter.attention import ATTENTION, is_attention
from qola.aiter.missing_names import ARCH_HEADER, missing_macros
from qola.aiter.proven_faults import KernelFacts, find_proven_faults
from qola.aiter.tree import configs, licenses
from qola.codegen.types import Explanation
from qola.common.folder import Folder
from qola.common.processes import thread_pool
from qola.common.version import docs_url
from qola.manifest.constants import PARTLY_TESTED_ARCHS, TESTED_ARCHS
from qola.manifest.load import ModuleSpec
from qola.plan.assembly import Assembly
from qola.plan.functions import plan_functions
from qola.plan.generate import generate_further, generate_module, launch_findings
from qola.plan.inputs import calling_files, input_files
from qola.plan.model import Plan, PlannedAiter
from qola.plan.module_entry import check_agreement
from qola.plan.python_modules import plan_python_module
from qola.plan.request import Request, ResolvedRequest
from qola.plan.resolve import resolve
from qola.plan.triton_kernels import plan_triton
from qola_base.errors import Finding, PlanError, QolaError
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
    made = Assembly(resolved, output)
    for module in (*generated, *others):
        if module.config.name in ATTENTION:
            made.add(module)
        elif module.torch or is_attention(module.config.name):
            made.add_torch(module)
    check_agreement(made.entries)
    if unknown := list(_unknown_to_ck(resolved, made)):
        raise PlanError(unknown)
    findings += _proven_faults(resolved, made)
    python_modules = tuple(
        plan_python_module(resolved, module, output) for module in others if not module.torch
    )
    functions = plan_functions(resolved, output)
    python_modules += functions.modules
    header_sets = tuple(made.header_sets[name] for name in sorted(made.header_sets))
    sources = [file for module in (*generated, *others) for file in module.tree_files]
    sources += [file for python in python_modules for file in python.inputs]
    aiter_python = calling_files(tree) if request.manifest.for_aiter else {}
    aiter_python |= functions.inputs
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
        modules=tuple(made.modules),
        python_modules=python_modules,
        torch_modules=tuple(made.torch_modules),
        triton=plan_triton(request.manifest, request.triton, resolved.archs, output),
        warnings=(
            *resolved.warnings,
            *findings,
            *(warning for entry in made.entries.values() for warning in entry.warnings),
        ),
        inputs=input_files(tree, header_sets, sources),
        configs=configs(tree, (module.config for module in resolved.modules)),
        licenses=licenses(tree),
        aiter_python=aiter_python,
    )


def _unknown_to_ck(resolved: ResolvedRequest, made: Assembly) -> Iterator[Finding]:
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


def _proven_faults(resolved: ResolvedRequest, made: Assembly) -> list[Finding]:
    """Return warnings for the planned kernels with a proven fault.

    Raises:
        PlanError: the manifest refuses such kernels.
    """
    request = resolved.request
    kernels = [
        KernelFacts(kernel.name, kernel.archs, "", kernel.direction, kernel.fields)
        for kernel in made.kernels
    ]
    objects = (
        code for module in (*made.modules, *made.torch_modules) for code in module.code_objects
    )
    kernels += [KernelFacts(code.key, (code.arch,), code.sha256) for code in objects]
    refuse = request.manifest.refuse_proven_faults
    found = list(find_proven_faults(request.tree, resolved.archs, kernels, refuse=refuse))
    if found and refuse:
        raise PlanError(found)
    return found
