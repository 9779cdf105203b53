"""Resolves a request: its archs, and its modules with their entries of optCompilerConfig.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

from qola.aiter import module_kinds
from qola.aiter.attention import (
    ATTENTION,
    TORCH_ATTENTION,
    attention_of,
    is_assembly_alone,
    is_attention,
)
from qola.aiter.known_faults import known_faults
from qola.aiter.module_config import is_outside, split_flags
from qola.aiter.module_kinds import ModuleKind, names_word
from qola.aiter.preprocess import defined_by
from qola.aiter.tree import CONFIG_FILE, ROCM, TREE_TOKEN, AiterTree, ModuleConfig
from qola.codegen.types import Selection
from qola.common.version import docs_url
from qola.manifest.constants import PARTLY_TESTED_ARCHS, TESTED_ARCHS
from qola.manifest.fields import FILTERED, FWD_VARIANTS
from qola.manifest.load import Manifest, ModuleSpec
from qola.manifest.types import BuildMode, BwdVariant, FwdVariant
from qola.plan.checks import LIBRARY, check_request
from qola.plan.request import Request, ResolvedModule, ResolvedRequest
from qola_base.errors import AiterError, Finding, ManifestError, PlanError, QolaError
from qola_base.json_types import json_fields

_ADDED = {
    "add_flags_extra_cc": "flags_cc",
    "add_flags_extra_hip": "flags_hip",
    "add_includes": "include_dirs",
}
"""Keys of a module that add to its entry of optCompilerConfig.json, and what they add to."""

_BASE = "module_mha_varlen_fwd"
"""AITER's entry with the sources and flags of the torch modules that forward variants become."""

_DTYPES = ("bf16", "fp16")
_BIASES = {"no": "nbias", "bias": "bias", "alibi": "alibi"}
_FLAGS = ("mask", "lse", "dropout", "skip", "sink")


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
    config_of = cache(lambda name: configure(request, specs[name], archs))

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


def configure(request: Request, spec: ModuleSpec, archs: Sequence[str] = ()) -> ModuleConfig:
    """Evaluate a module's entry of optCompilerConfig.json with the manifest's changes.

    Args:
        archs: as of `AiterTree.module`.

    Raises:
        AiterError: the tree's own entry cannot be used.
        ManifestError: a value of the manifest cannot be used.
        PlanError: a flag depends on where the tree is.
    """
    tree, manifest = request.tree, request.manifest
    replacing = dict(spec.overrides)
    added = {part: tuple(filter(None, replacing.pop(key, ()))) for key, part in _ADDED.items()}
    try:
        for key in ("add_flags_extra_cc", "add_flags_extra_hip"):
            place = manifest.place("modules", spec.index, key)
            added[_ADDED[key]] = split_flags(added[_ADDED[key]], place)
    except AiterError as error:
        raise ManifestError(error.findings) from None
    more_flags = (*added["flags_cc"], *added["flags_hip"])
    rocm = request.rocm_version or ROCM
    evaluate = partial(tree.module, spec.name, more_flags=more_flags, archs=archs, rocm=rocm)
    config = _evaluated(evaluate, manifest, spec, replacing)
    missing = [
        directory
        for directory in added["include_dirs"]
        if is_outside(directory) or not os.path.isdir(tree.root / directory)
    ]
    if missing:
        raise ManifestError(
            Finding(
                manifest.place("modules", spec.index, "add_includes"),
                f"{', '.join(missing)}: no such directory in the tree",
                "directories relative to the AITER tree",
            )
        )
    own = {
        "srcs": config.srcs,
        "extra_include": config.include_dirs,
        "blob_gen_cmd": tuple(call.script for call in config.generators),
    }
    own = {key: paths for key, paths in own.items() if key in replacing}
    own["add_includes"] = added["include_dirs"]
    # Links that the tree's own entry names may lead out of it.
    elsewhere = [
        (key, path) for key, paths in own.items() for path in paths if not tree.holds(path)
    ]
    if elsewhere:
        raise ManifestError(
            Finding(
                manifest.place("modules", spec.index, key),
                f"{path}: a link that leads out of the tree",
                "a path in the AITER tree or its Composable Kernel",
                "a patch (patches_dir) can add it to the tree",
            )
            for key, path in elsewhere
        )
    # AITER passes flags for C++ to HIP sources, too, before those for HIP
    # (_write_ninja_file_to_build_library in its cpp_extension.py). qola compiles all as HIP.
    flags_cc = config.flags_cc + added["flags_cc"]
    flags = flags_cc + config.flags_hip + added["flags_hip"]
    flags = tuple(flag for flag in flags if not _is_unused(tree, config, flag))
    rooted = [flag for flag in flags if TREE_TOKEN in flag]
    if rooted:
        key = "flags_extra_cc" if rooted[0] in flags_cc else "flags_extra_hip"
        place = f"{CONFIG_FILE} {spec.name}.{key}"
        if key in replacing:
            place = manifest.place("modules", spec.index, key)
        raise PlanError(
            Finding(
                place,
                ", ".join(rooted),
                f"flags without the tree's path ({TREE_TOKEN}): objects must not depend on it",
            )
        )
    # Headers in directories of the manifest have precedence over AITER's.
    dirs = added["include_dirs"] + config.include_dirs
    config = replace(config, flags_cc=(), flags_hip=flags, include_dirs=dirs)
    return _with_directions(config, manifest, spec)


def _is_unused(tree: AiterTree, config: ModuleConfig, flag: str) -> bool:
    """Return whether a flag only defines a macro with a path of the tree that nothing names."""
    if TREE_TOKEN not in flag:
        return False
    macros = defined_by([flag])
    return len(macros) == 1 and not any(names_word(tree, config, macro) for macro in macros)


def _with_directions(config: ModuleConfig, manifest: Manifest, spec: ModuleSpec) -> ModuleConfig:
    """Add a call of CK's generator for each direction that a manifest adds."""
    there = {direction for call in config.ck_calls for direction in call.ck_directions}
    new = [direction for direction in spec.add_directions if direction not in there]
    if spec.add_directions and (config.without_ck or not config.ck_calls):
        raise ManifestError(
            Finding(
                manifest.place("modules", spec.index, "add_directions"),
                f"{', '.join(spec.add_directions)}, in a library without Composable Kernel",
                "an entry that calls CK's generate.py, with Composable Kernel's kernels",
                "remove add_directions, or -DENABLE_CK=0",
            )
        )
    calls = []
    for direction in new:
        # With the receipt and the output of AITER's own calls.
        first = config.ck_calls[0]
        args = ("-d", direction, "--receipt", first.ck_receipt, "--output_dir", "{}")
        calls.append(replace(first, args=args))
    return replace(config, generators=(*config.generators, *calls))


def _evaluated(
    evaluate: Callable[..., ModuleConfig],
    manifest: Manifest,
    spec: ModuleSpec,
    replacing: Mapping[str, object],
) -> ModuleConfig:
    try:
        config = evaluate(overrides=replacing.items())
    except AiterError as error:
        # A place ends with the entry's key. Errors in a replaced key have a place in the manifest.
        keys = [f.place.rpartition(".")[2] for f in error.findings]
        own = [
            replace(f, place=manifest.place("modules", spec.index, key))
            for f, key in zip(error.findings, keys, strict=True)
            if key in replacing
        ]
        if not own:
            raise
        raise ManifestError(own) from None
    ignored = {
        "extra_ldflags": config.ldflags,
        "flags_extra_hip_per_source": config.flags_hip_per_source
        if is_attention(spec.name)
        else (),
        "hip_clang_path": config.hip_clang_path,
        "third_party": config.third_party,
    }
    if any(ignored.values()):
        raise PlanError(
            _unsupported(manifest, spec, key, str(value), key in replacing)
            for key, value in ignored.items()
            if value
        )
    return config


def _unsupported(
    manifest: Manifest, spec: ModuleSpec, key: str, value: str, in_manifest: bool
) -> Finding:
    """Return the error of a key that a plan does not support for a module."""
    if in_manifest:
        return Finding(
            manifest.place("modules", spec.index, key),
            f"{value}, for {spec.name}",
            f"no {key}: a plan does not support it for this module",
            f"remove {key}; flags_extra_hip applies to all sources of the module",
        )
    return Finding(
        f"{CONFIG_FILE} {spec.name}.{key}",
        value,
        "an entry without it: a plan does not support this key yet",
        "use an AITER whose entry has none (the 0.1.7 wheels)",
    )


def expand_variants(variants: Iterable[FwdVariant]) -> dict[str, tuple[FwdVariant, ...]]:
    """Return the variants of each torch module that forward variants become, by its name.

    Variants can share modules. A variant without `dtype` stands for bf16 and fp16, as in ROCm/QoLA.
    """
    found: dict[str, tuple[FwdVariant, ...]] = {}
    for variant in variants:
        for name, one in _combinations(variant):
            found[name] = (*found.get(name, ()), one)
    return dict(sorted(found.items()))


def _combinations(variant: FwdVariant) -> Iterator[tuple[str, FwdVariant]]:
    for dtype, bias, *flags in product(
        variant.dtype or _DTYPES, variant.bias, *(getattr(variant, name) for name in _FLAGS)
    ):
        words = [name if on else f"n{name}" for name, on in zip(_FLAGS, flags, strict=True)]
        chosen: dict[str, Any] = {name: (on,) for name, on in zip(_FLAGS, flags, strict=True)}
        one = replace(variant, dtype=(dtype,), bias=(bias,), **chosen)
        yield "_".join(["mha_varlen_fwd", dtype, _BIASES[bias], *words]), one


def variant_modules(manifest: Manifest, mode: BuildMode | None) -> tuple[ModuleSpec, ...]:
    """Return implicit ``[[modules]]`` tables for the modules of variants in mode pybind.

    There are none if the manifest declares a module whose kernels the variants select.
    """
    declared = {module.name for module in manifest.modules}
    if (mode or manifest.mode) != "pybind" or declared & {*FILTERED[FWD_VARIANTS]}:
        return ()
    return tuple(ModuleSpec(name, "pybind") for name in expand_variants(manifest.fwd_variants))


def all_modules(manifest: Manifest, mode: BuildMode | None) -> tuple[ModuleSpec, ...]:
    """Return the modules that a manifest declares, and the modules of its variants."""
    return (*manifest.modules, *variant_modules(manifest, mode))


def _modules_of_variants(request: Request, archs: tuple[str, ...]) -> tuple[ResolvedModule, ...]:
    """Return the torch modules that forward variants become."""
    manifest = request.manifest
    specs = variant_modules(manifest, request.spec.mode)
    if not specs or _BASE not in request.tree.module_names():
        return ()
    config = configure(request, replace(specs[0], name=_BASE), archs)
    # The entry points of such a module take forward problems only.
    others = tuple(d for call in config.ck_calls for d in call.ck_directions if d != "fwd")
    variants = expand_variants(manifest.fwd_variants)
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
