"""Makes a plan: brings a manifest, an AITER tree and CK's generators together."""

from __future__ import annotations

from qola.aiter.attention import ATTENTION
from qola.aiter.tree import configs, licenses
from qola.codegen.types import Explanation
from qola.errors import PlanError
from qola.folder import Folder
from qola.manifest.load import ModuleSpec
from qola.plan.assembly import Assembly
from qola.plan.further import generate_further
from qola.plan.generated import generate_module
from qola.plan.inputs import input_files
from qola.plan.model import Plan, PlannedAiter
from qola.plan.module_entry import check_agreement
from qola.plan.python_module import plan_python_module
from qola.plan.request import ResolvedRequest
from qola.plan.triton_kernels import plan_triton
from qola.plan.unlaunched import judged
from qola.processes import thread_pool
from qola.progress import log


def build_plan(resolved: ResolvedRequest, output: Folder) -> Plan:
    """Plan a manifest and write the sources it needs.

    Args:
        output: gets a directory for each module.

    Raises:
        PlanError: the manifest leaves a module without kernels, or with ones that nothing
            launches, or cannot be planned yet.
        AiterError: the tree cannot be read.
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
    """
    request = resolved.request
    tree = request.tree
    with thread_pool(2) as pool:
        # Each module's generators run in processes of their own.
        further = pool.map(
            lambda module: generate_further(resolved, module, output), resolved.further
        )
        generated = list(
            pool.map(
                lambda module: generate_module(resolved, module, output),
                (*resolved.attention, *resolved.torch),
            )
        )
        others = list(further)
    made = Assembly(resolved, output)
    told = [finding for module in generated for finding in judged(tree, module)]
    if dead := [finding for finding in told if finding.severity == "error"]:
        raise PlanError(dead)
    for module in generated:
        if module.config.name in ATTENTION:
            made.add(module)
        else:
            made.add_torch(module)
    for module in others:
        if module.torch:
            made.add_torch(module)
    check_agreement(made.entries)
    python_modules = tuple(
        plan_python_module(resolved, module, output) for module in others if not module.torch
    )
    ordered = tuple(made.header_sets[name] for name in sorted(made.header_sets))
    sources = [file for module in (*generated, *others) for file in module.tree_files]
    sources += [file for python in python_modules for file in python.inputs]
    return Plan(
        name=request.name,
        namespace=request.manifest.namespace,
        archs=resolved.archs,
        manifest=request.manifest.to_dict(),
        aiter=PlannedAiter(tree.generation, request.aiter_id, tree.version, request.aiter_patches),
        packages=dict(sorted(made.packages.items())),
        header_sets=ordered,
        kernels=tuple(made.kernels),
        modules=tuple(made.modules),
        batches=tuple(sorted(made.batches, key=lambda batch: (batch.package, batch.name))),
        python_modules=python_modules,
        torch_modules=tuple(made.torch_modules),
        triton=plan_triton(resolved, output),
        warnings=(
            *resolved.warnings,
            *told,
            *(w for _, entry in made.entries for w in entry.warnings),
        ),
        inputs=input_files(tree, ordered, sources),
        configs=configs(tree),
        licenses=licenses(tree),
    )


def explain(
    resolved: ResolvedRequest, output: Folder
) -> tuple[tuple[ModuleSpec, tuple[Explanation, ...]], ...]:
    """Say of every kernel of the receipts in use why it is in the plan or not.

    Args:
        output: the sources are generated there, as for a plan.

    Returns:
        Each attention module of the manifest with its explanations, in CK's order.

    Raises:
        QolaError: as build_plan.
    """
    log.info(f"{resolved.request.name}: comparing with every kernel of the receipts in use")
    return tuple(
        (module.spec, generate_module(resolved, module, output, explain=True).kernels.explanations)
        for module in resolved.attention
    )
