"""Evaluates a module's entry of optCompilerConfig.json with a manifest's changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from qola.aiter.attention import is_attention
from qola.aiter.module_config import is_outside, split_flags
from qola.aiter.module_kinds import names_word
from qola.aiter.preprocess import defined_by
from qola.aiter.tree import CONFIG_FILE, ROCM, TREE_TOKEN, AiterTree, ModuleConfig
from qola.manifest.load import Manifest, ModuleSpec
from qola_base.errors import AiterError, Finding, ManifestError, PlanError

ADDED = {
    "add_flags_extra_cc": "flags_cc",
    "add_flags_extra_hip": "flags_hip",
    "add_includes": "include_dirs",
}
"""Keys of a module that add to its entry of optCompilerConfig.json, and what they add to."""


def configure(
    tree: AiterTree,
    manifest: Manifest,
    spec: ModuleSpec,
    *,
    archs: Sequence[str] = (),
    rocm: str = ROCM,
) -> ModuleConfig:
    """Evaluate a module's entry of optCompilerConfig.json with the manifest's changes.

    `archs` and `rocm` are those of `AiterTree.module`.

    Raises:
        AiterError: the tree's own entry cannot be used.
        ManifestError: a value of the manifest cannot be used.
        PlanError: a flag depends on where the tree is.
    """
    replacing = dict(spec.overrides)
    added = {part: tuple(filter(None, replacing.pop(key, ()))) for key, part in ADDED.items()}
    try:
        for key in ("add_flags_extra_cc", "add_flags_extra_hip"):
            place = manifest.place("modules", spec.index, key)
            added[ADDED[key]] = split_flags(added[ADDED[key]], place)
    except AiterError as error:
        raise ManifestError(error.findings) from None
    more_flags = (*added["flags_cc"], *added["flags_hip"])
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
