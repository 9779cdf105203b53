"""Resolves a request: its archs, and the modules of its manifest with their evaluated entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, attention_of, is_assembly_alone
from qola.aiter.known_faults import known_faults
from qola.aiter.module_kinds import ModuleKind
from qola.aiter.tree import ROCM, ModuleConfig
from qola.codegen.types import Selection
from qola.common.version import docs_url
from qola.manifest.constants import PARTLY_TESTED_ARCHS, TESTED_ARCHS
from qola.manifest.load import Manifest, ModuleSpec
from qola.manifest.types import BwdVariant, FwdVariant
from qola.plan import torch_variants
from qola.plan.checks import LIBRARY, check_request
from qola.plan.configure import configure
from qola.plan.request import Request, ResolvedModule, ResolvedRequest
from qola_base.errors import Finding, QolaError
from qola_base.json_types import json_fields


def resolve(request: Request) -> ResolvedRequest:
    """Compare the manifest with tree and toolchain, and evaluate its modules once.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but contains something that a plan does not support.
        AiterError: the tree cannot be read.
        ToolchainError: the archs of this machine are needed, and it has no GPU.
    """
    manifest = request.manifest
    specs = {spec.name: spec for spec in manifest.modules}
    archs = _known_archs(request)
    config_of = cache(lambda name: _configured(request, specs[name], archs))

    @cache
    def kind_of(name: str) -> ModuleKind:
        spec = specs[name]
        return module_kinds.classify(
            request.tree, name, overrides=spec.overrides, drop_srcs=spec.drop_srcs
        )

    warnings = check_request(request, config_of, kind_of)
    chosen = request.resolve_archs()
    modules = tuple(
        ResolvedModule(
            spec,
            config_of(spec.name),
            select_kernels(request, spec, _variants(manifest, spec.name)),
            kind_of(spec.name).kind == "needs_torch",
            kind_of(spec.name).rocm,
        )
        for spec in manifest.modules
    )
    modules += _modules_of_variants(request, archs)
    warnings += [*_untested(manifest, chosen), *_faults(request, modules, chosen)]
    return ResolvedRequest(request, chosen, modules, (*manifest.warnings, *warnings))


def _variants(manifest: Manifest, module: str) -> Sequence[FwdVariant | BwdVariant]:
    """Return the variants that select a module's kernel instances."""
    if module not in (*ATTENTION, *TORCH_ATTENTION) or is_assembly_alone(module):
        # A module of assembly kernels selects them by its own table.
        return ()
    forward = attention_of(module).direction == "fwd"
    return manifest.fwd_variants if forward else manifest.bwd_variants


def select_kernels(
    request: Request, spec: ModuleSpec, variants: Sequence[FwdVariant | BwdVariant]
) -> Selection:
    """Return the selection of a module's kernels: those of variants, and those that it names."""
    manifest = request.manifest
    kernels = tuple(k for k in manifest.kernels if LIBRARY[k.config.direction] == spec.name)
    return Selection(
        receipt=spec.receipt,
        variants=variants,
        drop_directions=frozenset(spec.drop_directions),
        # Assembly kernels would take problems from kernels that are named one by one.
        asm=(spec.hsa_subdirs is None or bool(spec.hsa_subdirs))
        and (bool(variants) or not kernels),
        embedded=spec.hsa_subdirs,
        drop_srcs=frozenset(spec.drop_srcs),
        level=request.spec.require,
        keep_unreachable=manifest.keep_unreachable,
        add_directions=frozenset(spec.add_directions),
        kernels=kernels,
        place=partial(manifest.place, "modules", spec.index),
    )


def _known_archs(request: Request) -> tuple[str, ...]:
    """Return the archs to plan for, () if they are unknown: other errors are reported first."""
    try:
        return request.resolve_archs()
    except QolaError:
        return ()


def _configured(request: Request, spec: ModuleSpec, archs: tuple[str, ...]) -> ModuleConfig:
    rocm = request.rocm_version or ROCM
    return configure(request.tree, request.manifest, spec, archs=archs, rocm=rocm)


def _modules_of_variants(request: Request, archs: tuple[str, ...]) -> tuple[ResolvedModule, ...]:
    """Return the torch modules that forward variants become."""
    manifest = request.manifest
    specs = torch_variants.specs(manifest, request.spec.mode)
    if not specs or torch_variants.BASE not in request.tree.module_names():
        return ()
    config = _configured(request, replace(specs[0], name=torch_variants.BASE), archs)
    # The entry points of such a module take forward problems only.
    others = tuple(d for call in config.ck_calls for d in call.ck_directions if d != "fwd")
    variants = torch_variants.expand_variants(manifest.fwd_variants)
    dropping = (replace(spec, drop_directions=others) for spec in specs)
    return tuple(
        ResolvedModule(spec, config, select_kernels(request, spec, variants[spec.name]), torch=True)
        for spec in dropping
    )


def _faults(
    request: Request, modules: Iterable[ResolvedModule], chosen: Sequence[str]
) -> Iterator[Finding]:
    """Warn about known faults of the tree that kernels of the manifest can have."""
    for module in modules:
        if module.spec.name in ATTENTION:
            variants = [json_fields(variant) for variant in module.selection.variants]
            requested = [kernel.config.fields() for kernel in module.selection.kernels]
            kernels = [{k: (v,) for k, v in fields.items()} for fields in requested]
            yield from known_faults(request.tree, module.config, chosen, [*variants, *kernels])


def _untested(manifest: Manifest, chosen: Sequence[str]) -> Iterator[Finding]:
    """Warn about archs that no test of qola builds for."""
    partly = [arch for arch in chosen if arch in PARTLY_TESTED_ARCHS]
    others = [arch for arch in chosen if arch not in (*TESTED_ARCHS, *PARTLY_TESTED_ARCHS)]
    for archs, found in (
        (partly, "for which qola's tests build only forward kernels"),
        (others, "which no test of qola builds for"),
    ):
        if archs:
            yield Finding(
                manifest.place("build", "architectures"),
                f"{', '.join(archs)}, {found}",
                f"{' or '.join(TESTED_ARCHS)}; others are as good as the tree and its compiler",
                f"{docs_url('reference/manifest.md')} says what was tried",
                "warning",
            )
