"""Checks manifest, tree and toolchain against each other before any work begins."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, TORCH_ATTENTION, attention_of, is_assembly_alone
from qola.aiter.known_faults import known_faults
from qola.aiter.module_config import CONFIG_KEYS
from qola.aiter.module_kinds import ModuleKind
from qola.aiter.tree import CONFIG_FILE, AiterTree, ModuleConfig
from qola.codegen.asm.path import launched_subdirs
from qola.codegen.ck.receipts import FAMILIES, known_receipts
from qola.codegen.types import RequestedKernel
from qola.errors import Finding, ManifestError, PlanError
from qola.json_types import json_fields
from qola.kernel.rules import validate
from qola.manifest.check import check_against
from qola.manifest.constants import ADDABLE, TESTED_ARCHS
from qola.manifest.fields import KERNELS
from qola.manifest.load import Manifest
from qola.manifest.types import BwdVariant, FwdVariant
from qola.plan import torch_variants
from qola.plan.configure import configure
from qola.plan.request import Request, ResolvedModule, ResolvedRequest
from qola.version import docs_url

#: The library with the kernels of each direction.
_LIBRARY = {
    direction: module for module, of in ATTENTION.items() for direction in FAMILIES[of.direction]
}


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
    config_of = cache(lambda name: configure(request.tree, manifest, specs[name]))

    @cache
    def kind_of(name: str) -> ModuleKind:
        spec = specs[name]
        return module_kinds.classify(
            request.tree, name, overrides=spec.overrides, drop_srcs=spec.drop_srcs
        )

    warnings = _check(request, config_of, kind_of)
    chosen = request.resolve_archs()
    modules = tuple(
        ResolvedModule(
            spec,
            config_of(spec.name),
            _variants(manifest, spec.name),
            kind_of(spec.name).kind == "needs_torch",
            requested_kernels(manifest, spec.name),
            kind_of(spec.name).rocm,
        )
        for spec in manifest.modules
    )
    modules += _modules_of_variants(request)
    warnings += [*_untested(manifest, chosen), *_faults(request, modules, chosen)]
    return ResolvedRequest(request, chosen, modules, (*manifest.warnings, *warnings))


def _variants(manifest: Manifest, module: str) -> tuple[FwdVariant, ...] | tuple[BwdVariant, ...]:
    """Return the variants that select a module's kernel instances."""
    if module not in (*ATTENTION, *TORCH_ATTENTION) or is_assembly_alone(module):
        # A module of assembly kernels selects them by its own table.
        return ()
    forward = attention_of(module).direction == "fwd"
    return manifest.fwd_variants if forward else manifest.bwd_variants


def requested_kernels(manifest: Manifest, module: str) -> tuple[RequestedKernel, ...]:
    """Return the kernels of a module that the manifest names one by one."""
    return tuple(
        RequestedKernel(spec.label, spec.config)
        for spec in manifest.kernels
        if _LIBRARY[spec.config.direction] == module
    )


def _modules_of_variants(request: Request) -> tuple[ResolvedModule, ...]:
    """Return the torch modules that forward variants become."""
    manifest = request.manifest
    specs = torch_variants.specs(manifest, request.spec.mode)
    if not specs or torch_variants.BASE not in request.tree.module_names():
        return ()
    config = configure(request.tree, manifest, replace(specs[0], name=torch_variants.BASE))
    # The entry points of such a module take forward problems only.
    others = tuple(d for call in config.ck_calls for d in call.ck_directions if d != "fwd")
    variants = torch_variants.expand_variants(manifest.fwd_variants)
    return tuple(
        ResolvedModule(
            replace(spec, drop_directions=others), config, variants[spec.name], torch=True
        )
        for spec in specs
    )


def _faults(
    request: Request, modules: Iterable[ResolvedModule], chosen: Sequence[str]
) -> Iterator[Finding]:
    """Warn about known faults of the tree that kernels of the manifest can have."""
    for module in modules:
        if module.spec.name in ATTENTION:
            variants = [json_fields(variant) for variant in module.variants]
            requested = [kernel.config.fields() for kernel in module.requested]
            kernels = [{k: (v,) for k, v in fields.items()} for fields in requested]
            yield from known_faults(request.tree, module.config, chosen, [*variants, *kernels])


def _untested(manifest: Manifest, chosen: Sequence[str]) -> Iterator[Finding]:
    """Warn about archs that no test of qola builds for."""
    others = [arch for arch in chosen if arch not in TESTED_ARCHS]
    if others:
        yield Finding(
            manifest.place("build", "architectures"),
            f"{', '.join(others)}, which no test of qola builds for",
            f"{' or '.join(TESTED_ARCHS)}; others are as good as the tree and its compiler",
            f"{docs_url('reference/manifest.md')} says what was tried",
            "warning",
        )


def _check(
    request: Request, config_of: Callable[[str], ModuleConfig], kind_of: Callable[[str], ModuleKind]
) -> list[Finding]:
    """Compare the manifest with tree and toolchain; return warnings."""
    tree, manifest = request.tree, request.manifest
    overrides = {spec.name: spec.overrides for spec in manifest.modules}
    findings = check_against(
        manifest,
        modules=tree.module_names(),
        receipts=lambda module: known_receipts(tree, module),
        aiter_id=request.aiter_id or tree.version,
        # Some keys of modules with PyTorch cannot be evaluated.
        srcs_of=lambda module: (
            (
                config_of(module)
                if module in ATTENTION
                else module_kinds.deciding_config(tree, module, overrides[module])
            ).srcs
        ),
        rocm_version=request.rocm_version or None,
        overridden=request.spec.override_aiter_commit,
        mode=request.spec.mode,
        judged_elsewhere=[name for name in overrides if name not in ATTENTION],
    )
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings)
    if wrong_mode := list(_wrong_mode(request, kind_of)):
        raise PlanError(wrong_mode)
    unsupported = [
        *check_requested(manifest),
        *_wrong_patches(request),
        *_unused_subdirs(request, config_of),
        *unknown_keys(tree),
    ]
    if any(finding.severity == "error" for finding in unsupported):
        raise PlanError(unsupported)
    return [*findings, *unsupported]


def _wrong_mode(request: Request, kind_of: Callable[[str], ModuleKind]) -> Iterator[Finding]:
    """Find modules in mode cpp_itfs that have no C++ interface."""
    manifest, known = request.manifest, request.tree.module_names()
    for spec in manifest.modules:
        if spec.name in ATTENTION or spec.name not in known:
            continue
        kind = kind_of(spec.name)
        only_python = kind.torch is not None or kind.python is not None
        if only_python and manifest.module_mode(spec, request.spec.mode) != "pybind":
            yield Finding(
                manifest.place("modules", spec.index, "mode"),
                f"{spec.name} in mode cpp_itfs",
                f"mode pybind: only {' and '.join(ATTENTION)} have a C++ interface",
                f'write mode = "pybind" in the [[modules]] table of {spec.name}',
            )


def check_requested(manifest: Manifest) -> Iterator[Finding]:
    """Yield a finding for each kernel without a module, and for each rule that a kernel breaks."""
    modules = {spec.name: spec for spec in manifest.modules}
    for spec in manifest.kernels:
        place = manifest.place(KERNELS.name, spec.index, "names")
        name, direction = spec.config.name, spec.config.direction
        library = _LIBRARY[direction]
        module = modules.get(library)
        if module is None:
            found = f"{name} without the module that has it"
            fix = f'add the lines\n[[modules]]\nname = "{library}"\nmode = "cpp_itfs"'
            yield Finding(place, found, f"a [[modules]] table of {library}", fix)
        elif direction in ADDABLE and direction not in module.add_directions:
            found = f"{name}: direction {direction}, which {library} does not have here"
            fix = f'add_directions = ["{direction}"]'
            yield Finding(place, found, f"a direction that {library} is given", fix)
        for broken in validate(spec.config):
            found = f"{name} breaks the rule {broken.rule.name}: {broken.finding.found}"
            yield replace(broken.finding, place=place, found=found)


def _wrong_patches(request: Request) -> Iterator[Finding]:
    """Check that the tree has the patches of patches_dir, and no others, in the same order."""
    manifest = request.manifest
    if not manifest.patches_dir or request.spec.override_aiter_commit:
        return
    if request.patches == request.aiter_patches:
        return
    have, want = (
        {pin.name: pin.sha256 for pin in pins} for pins in (request.aiter_patches, request.patches)
    )
    differences = [
        f"{name} ({'is not applied' if name not in have else 'is applied in another form'})"
        for name in want
        if have.get(name) != want[name]
    ]
    differences += [f"{name} (is applied, and not in it)" for name in have if name not in want]
    # patches_dir is relative to the manifest; the tag's attribute is relative to the root module.
    directory = posixpath.normpath(
        posixpath.join(posixpath.dirname(manifest.file), manifest.patches_dir)
    )
    yield Finding(
        manifest.place("qola", "patches_dir"),
        f"{manifest.patches_dir}, while the AITER tree has "
        + f"{len(have) or 'no'} patch{'' if len(have) == 1 else 'es'}: "
        + (", ".join(differences) or "the same in another order"),
        "an AITER tree with just these patches",
        f'qola.aiter_wheel(..., patches_dir = "{directory}") in MODULE.bazel '
        "(or qola.aiter_git, qola.aiter_local); "
        f"without Bazel: qola checkout --patches-dir {directory}",
    )


def _unused_subdirs(
    request: Request, config_of: Callable[[str], ModuleConfig]
) -> Iterator[Finding]:
    """Find hsa_subdirs whose code objects the module does not launch."""
    for spec in request.manifest.modules:
        launched: tuple[str, ...] = ()
        if spec.hsa_subdirs and (spec.name in ATTENTION or is_assembly_alone(spec.name)):
            launched = launched_subdirs(request.tree, config_of(spec.name), spec.drop_srcs)
        if others := [subdir for subdir in spec.hsa_subdirs or () if subdir not in launched]:
            yield Finding(
                request.manifest.place("modules", spec.index, "hsa_subdirs"),
                f"{', '.join(others)}, whose code objects nothing in {spec.name} launches",
                f"{' or '.join(launched) or 'nothing: the module has no assembly kernels'}, "
                "or [] for none",
                f"hsa_subdirs = {json.dumps(launched)}" if launched else "remove hsa_subdirs",
            )


def unknown_keys(tree: AiterTree) -> Iterator[Finding]:
    """Warn about unknown keys of AITER's entries; in a module of the manifest they are errors."""
    if unknown := tree.unknown_keys():
        yield Finding(
            CONFIG_FILE,
            "unknown keys: "
            + "; ".join(f"{', '.join(keys)} of {name}" for name, keys in unknown.items()),
            f"of modules, {', '.join(CONFIG_KEYS)}",
            "nothing for modules that are not built; in a module that is built, an unknown key "
            "with a value is an error",
            "warning",
        )
