"""What to plan, with what: checked against each other before any work begins."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import (
    ATTENTION,
    TORCH_ATTENTION,
    attention_of,
    is_assembly_alone,
    is_attention,
)
from qola.aiter.known_faults import known_faults
from qola.aiter.module_config import CONFIG_KEYS
from qola.aiter.module_kinds import ModuleKind
from qola.aiter.tree import CONFIG_FILE, AiterTree, ModuleConfig
from qola.answers import NO_ANSWERS, AnswerCache
from qola.codegen.asm.path import launched_subdirs
from qola.codegen.ck.receipts import known_receipts
from qola.codegen.types import RequestedKernel
from qola.errors import Finding, ManifestError, PlanError
from qola.fetch.pins import PatchPin, patch_files, pin_patches
from qola.manifest import archs
from qola.manifest.load import Manifest, ModuleSpec, check_against
from qola.manifest.native_archs import native_archs
from qola.manifest.types import BwdVariant, FwdVariant
from qola.manifest.words import TESTED_ARCHS
from qola.plan import torch_variants
from qola.plan.configure import ADDED, configure
from qola.plan.requested import check_requested, requested_kernels
from qola.plan.spec import BuildSpec

FOLLOWED = ("srcs", "flags_extra_cc", "flags_extra_hip", "extra_include", "blob_gen_cmd")
"""Keys of optCompilerConfig.json that a module may replace, and that the plan follows."""

WITHOUT_EFFECT = ("verbose", "is_experimental")
"""Keys that change nothing in a library."""


@dataclass(frozen=True)
class Request:
    """What to plan, with what.

    Attributes:
        name: name of the manifest: targets are named after it.
        spec: the choices that replace the manifest's.
        default_archs: archs where neither names any ($GPU_ARCHS); () for those of this machine.
        native: asks this machine for its archs; only called where `native` is meant.
        rocm_version: HIP version of the toolchain, None where there is none.
        aiter_id: commit or version of the tree as its pin says, "" when not pinned.
        patches: patches the manifest's patches_dir holds.
        triton: Python files of the manifest's kernels in Triton, by path.
        answers: cached plans, and what generators answered before.
    """

    name: str
    manifest: Manifest
    tree: AiterTree
    spec: BuildSpec = field(default_factory=BuildSpec)
    default_archs: tuple[str, ...] = ()
    native: Callable[[], tuple[str, ...]] = native_archs
    rocm_version: str | None = None
    aiter_id: str = ""
    aiter_patches: tuple[PatchPin, ...] = ()
    patches: tuple[PatchPin, ...] = ()
    triton: Mapping[str, str] = field(default_factory=dict)
    answers: AnswerCache = NO_ANSWERS


@dataclass(frozen=True)
class Module:
    """A module of the manifest.

    Attributes:
        config: its entry of optCompilerConfig.json, as the manifest changes it.
        variants: those that select its kernel instances; () for all of its receipt.
        requested: kernels named one by one, in addition to those of variants; if there are no
            variants, the only kernels.
        torch: it is compiled with PyTorch's headers.
        rocm: ROCm's libraries beside HIP that it includes headers of, sorted; not of attention.
    """

    spec: ModuleSpec
    config: ModuleConfig
    variants: tuple[FwdVariant, ...] | tuple[BwdVariant, ...] = ()
    torch: bool = False
    requested: tuple[RequestedKernel, ...] = ()
    rocm: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResolvedRequest:
    """A request whose parts go together. Make one with `resolve`.

    Attributes:
        archs: the archs to plan for, sorted.
        modules: in the manifest's order.
        warnings: what a user should know although it can be planned.
    """

    request: Request
    archs: tuple[str, ...]
    modules: tuple[Module, ...]
    warnings: tuple[Finding, ...]

    @property
    def attention(self) -> tuple[Module, ...]:
        """The C++ libraries, which have kernel instances."""
        return tuple(module for module in self.modules if module.config.name in ATTENTION)

    @property
    def torch(self) -> tuple[Module, ...]:
        """The torch modules of attention, which have kernel instances too."""
        return tuple(module for module in self.modules if module.config.name in TORCH_ATTENTION)

    @property
    def further(self) -> tuple[Module, ...]:
        """The modules beside attention."""
        return tuple(module for module in self.modules if not is_attention(module.config.name))

    def place(self, spec: ModuleSpec, key: str) -> str:
        """Return where the manifest has a key of a module."""
        return self.request.manifest.place("modules", spec.index, key)


def resolve(request: Request) -> ResolvedRequest:
    """Compare the manifest with tree and toolchain, and evaluate what it asks for, once.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but cannot be planned yet.
        AiterError: the tree cannot be read.
        ToolchainError: this machine is asked for its archs, and has no GPU.
    """
    manifest = request.manifest
    specs = {spec.name: spec for spec in manifest.modules}
    config_of = cache(lambda name: configure(request.tree, manifest, specs[name]))
    kind_of = cache(lambda name: _kind(request.tree, specs[name]))
    warnings = _check(request, config_of, kind_of)
    chosen = archs.resolve(request.spec.archs, manifest, request.default_archs, request.native)
    modules = tuple(
        Module(
            spec,
            config_of(spec.name),
            variants_of(manifest, spec.name),
            kind_of(spec.name).kind == "needs_torch",
            requested_kernels(manifest, spec.name),
            kind_of(spec.name).rocm,
        )
        for spec in manifest.modules
    )
    modules += _expanded(request)
    warnings += [*_untested(manifest, chosen), *_faults(request, modules, chosen)]
    return ResolvedRequest(request, chosen, modules, (*manifest.warnings, *warnings))


def variants_of(manifest: Manifest, module: str) -> tuple[FwdVariant, ...] | tuple[BwdVariant, ...]:
    """Return the variants that select a module's kernel instances."""
    if module not in (*ATTENTION, *TORCH_ATTENTION) or is_assembly_alone(module):
        # What a module of assembly kernels launches is decided by its own table.
        return ()
    forward = attention_of(module).direction == "fwd"
    return manifest.fwd_variants if forward else manifest.bwd_variants


def _expanded(request: Request) -> tuple[Module, ...]:
    """Return the torch modules that forward variants become."""
    manifest = request.manifest
    specs = torch_variants.specs(manifest, request.spec.mode)
    if not specs or torch_variants.BASE not in request.tree.module_names():
        return ()
    config = configure(request.tree, manifest, replace(specs[0], name=torch_variants.BASE))
    # No entry point of such a module takes a problem of another direction.
    others = tuple(d for call in config.ck_calls for d in call.ck_directions if d != "fwd")
    variants = torch_variants.expand(manifest.fwd_variants)
    return tuple(
        Module(replace(spec, drop_directions=others), config, variants[spec.name], torch=True)
        for spec in specs
    )


def _faults(
    request: Request, modules: Iterable[Module], chosen: Sequence[str]
) -> Iterator[Finding]:
    """Warn of what is known to be wrong in the tree, as far as the manifest can come to it."""
    for module in modules:
        if module.spec.name in ATTENTION:
            variants = [vars(variant) for variant in module.variants]
            kernels = [
                {k: (v,) for k, v in one.config.fields().items()} for one in module.requested
            ]
            yield from known_faults(request.tree, module.config, chosen, [*variants, *kernels])


def _untested(manifest: Manifest, chosen: Sequence[str]) -> Iterator[Finding]:
    """Warn of archs that the tree may have kernels for, and no test here builds."""
    others = [arch for arch in chosen if arch not in TESTED_ARCHS]
    if others:
        yield Finding(
            manifest.place("build", "architectures"),
            f"{', '.join(others)}, which no test of qola builds for",
            f"{' or '.join(TESTED_ARCHS)}; others are as good as the tree and its compiler",
            "docs/reference/manifest.md says what was tried",
            "warning",
        )


def _kind(tree: AiterTree, spec: ModuleSpec) -> ModuleKind:
    return module_kinds.classify(
        tree, spec.name, overrides=spec.overrides, drop_srcs=spec.drop_srcs
    )


def _check(
    request: Request,
    config_of: Callable[[str], ModuleConfig],
    kind_of: Callable[[str], ModuleKind],
) -> list[Finding]:
    """Compare the manifest with tree and toolchain; return warnings.

    Args:
        config_of: evaluates a module's entry; called only where the comparison needs it.
        kind_of: says what kind of module an entry is.
    """
    tree, manifest = request.tree, request.manifest
    overrides = {spec.name: spec.overrides for spec in manifest.modules}
    findings = check_against(
        manifest,
        modules=tree.module_names(),
        receipts=lambda module: known_receipts(tree, module),
        aiter_id=request.aiter_id or tree.version,
        # Of modules that need PyTorch, not every key can be evaluated.
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
    if unplannable := list(_unplannable(request, kind_of)):
        raise PlanError(unplannable)
    unserved = [
        *check_requested(manifest),
        *_unpatched(request),
        *_unserved(request, config_of),
        *unknown_keys_of(tree),
    ]
    if any(finding.severity == "error" for finding in unserved):
        raise PlanError(unserved)
    return [*findings, *unserved]


def _unpatched(request: Request) -> Iterator[Finding]:
    """Find patches the manifest asks for that the tree does not have, just these in this order."""
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
    # From the directory of the manifest's file to what a tag takes: relative to the root module.
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


def _unplannable(request: Request, kind_of: Callable[[str], ModuleKind]) -> Iterator[Finding]:
    """Find modules beside ATTENTION that cannot be built, and say why."""
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


def unknown_keys_of(tree: AiterTree) -> Iterator[Finding]:
    """Warn of keys of AITER's entries that a plan does not follow; those in use are errors."""
    unknown = tree.unknown_keys()
    if unknown:
        yield Finding(
            CONFIG_FILE,
            "unknown keys: "
            + "; ".join(f"{', '.join(keys)} of {name}" for name, keys in unknown.items()),
            f"of modules, {', '.join(CONFIG_KEYS)}",
            "nothing for modules that are not built; of those that are, a key with a value is an "
            "error",
            "warning",
        )


def _unserved(request: Request, config_of: Callable[[str], ModuleConfig]) -> Iterator[Finding]:
    """Find what a plan does not follow: an error where the library would be another one."""
    tree, manifest = request.tree, request.manifest
    for spec in manifest.modules:
        launched: tuple[str, ...] = ()
        if spec.hsa_subdirs and (spec.name in ATTENTION or is_assembly_alone(spec.name)):
            launched = launched_subdirs(tree, config_of(spec.name), spec.drop_srcs)
        others = [subdir for subdir in spec.hsa_subdirs or () if subdir not in launched]
        if others:
            yield Finding(
                manifest.place("modules", spec.index, "hsa_subdirs"),
                f"{', '.join(others)}, whose code objects nothing in {spec.name} launches",
                f"{' or '.join(launched) or 'nothing: the module has no assembly kernels'}, "
                "or [] for none",
                f"hsa_subdirs = {json.dumps(launched)}" if launched else "remove hsa_subdirs",
            )
        for key, _ in spec.overrides:
            if key not in (*FOLLOWED, *ADDED, *WITHOUT_EFFECT):
                yield Finding(
                    manifest.place("modules", spec.index, key),
                    f"{key}, which a plan does not follow yet",
                    f"of the keys that change AITER's entry: {', '.join((*FOLLOWED, *ADDED))}",
                    f"remove {key}",
                )


def manifest_patches(manifest: Manifest, file: Path) -> tuple[PatchPin, ...]:
    """Return the patches that a manifest asks for; () when it has no patches_dir.

    Args:
        file: where it is; its patches_dir is relative to the directory of this file.

    Raises:
        AiterError: patches_dir is not a directory, or holds no patch.
    """
    if not manifest.patches_dir:
        return ()
    directory = file.parent / manifest.patches_dir
    return pin_patches(patch_files(directory, place=manifest.place("qola", "patches_dir")))
