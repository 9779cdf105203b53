"""What to plan, with what: checked against each other before any work begins."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION
from qola.aiter.tree import CONFIG_FILE, TREE_TOKEN, AiterTree, ModuleConfig
from qola.codegen.ck.receipts import known_receipts
from qola.errors import AiterError, Finding, ManifestError, PlanError
from qola.fetch.pins import PatchPin, patch_files, pin_patches
from qola.manifest import archs
from qola.manifest.fields import SUPPORTED_ARCHS
from qola.manifest.load import Manifest, ModuleSpec, check_against
from qola.manifest.native_archs import native_archs
from qola.manifest.types import BuildMode

FOLLOWED = ("srcs", "flags_extra_cc", "flags_extra_hip", "extra_include", "blob_gen_cmd")
"""Keys of optCompilerConfig.json that a module may replace, and that the plan follows."""

ADDED = {
    "add_flags_extra_cc": "flags_cc",
    "add_flags_extra_hip": "flags_hip",
    "add_includes": "include_dirs",
}
"""Keys of a module that add to its entry of optCompilerConfig.json, and what they add to."""

WITHOUT_EFFECT = ("verbose", "is_experimental")
"""Keys that change nothing in a library."""


@dataclass(frozen=True)
class Request:
    """What to plan, with what.

    Attributes:
        name: name of the manifest: targets are named after it.
        manifest: the manifest, valid in itself.
        tree: the AITER source tree.
        archs: archs instead of the manifest's, () to take those.
        default_archs: archs where neither names any ($GPU_ARCHS); () for those of this machine.
        native: asks this machine for its archs; only called where `native` is meant.
        mode: build mode the command line asks for.
        rocm_version: HIP version of the toolchain, None where there is none.
        aiter_id: commit or version of the tree as its pin says, "" when not pinned.
        overridden: the tree was chosen knowing that the manifest names another.
        aiter_patches: patches the tree was prepared with.
        patches: patches the manifest's patches_dir holds.
    """

    name: str
    manifest: Manifest
    tree: AiterTree
    archs: tuple[str, ...] = ()
    default_archs: tuple[str, ...] = ()
    native: Callable[[], tuple[str, ...]] = native_archs
    mode: BuildMode | None = None
    rocm_version: str | None = None
    aiter_id: str = ""
    overridden: bool = False
    aiter_patches: tuple[PatchPin, ...] = ()
    patches: tuple[PatchPin, ...] = ()


def resolve_archs(request: Request) -> tuple[str, ...]:
    """Returns the archs to plan for, sorted: see `qola.manifest.archs.resolve`.

    Raises:
        PlanError, ToolchainError: as there.
    """
    return archs.resolve(request.archs, request.manifest, request.default_archs, request.native)


def check(request: Request) -> list[Finding]:
    """Compares the manifest with tree and toolchain.

    Returns:
        Warnings.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but cannot be planned yet.
    """
    tree, manifest = request.tree, request.manifest
    specs = {spec.name: spec for spec in manifest.modules}
    findings = check_against(
        manifest,
        modules=tree.module_names(),
        receipts=lambda module: known_receipts(tree, module),
        aiter_id=request.aiter_id or tree.version,
        # Of modules that need PyTorch, not every key can be evaluated.
        srcs_of=lambda module: (
            (
                configure(request, specs[module])
                if module in ATTENTION
                else module_kinds.deciding_config(tree, module, specs[module].overrides)
            ).srcs
        ),
        rocm_version=request.rocm_version or None,
        overridden=request.overridden,
        mode=request.mode,
        # Archs asked for replace the manifest's, whatever these are.
        archs=manifest.architectures if request.archs else SUPPORTED_ARCHS,
        judged_elsewhere=[name for name in specs if name not in ATTENTION],
    )
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings)
    if unplannable := list(_unplannable(request)):
        raise PlanError(unplannable)
    unserved = [*_unpatched(request), *_unserved(manifest)]
    if any(finding.severity == "error" for finding in unserved):
        raise PlanError(unserved)
    return [*findings, *unserved]


def _unpatched(request: Request) -> Iterator[Finding]:
    """Finds patches the manifest asks for that the tree does not have, just these in this order."""
    manifest = request.manifest
    if not manifest.patches_dir or request.overridden or request.patches == request.aiter_patches:
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
        f'qola.wheel(..., patches_dir = "{directory}") in MODULE.bazel (or qola.git, qola.local); '
        f"without Bazel: qola checkout --patches-dir {directory}",
    )


def _unplannable(request: Request) -> Iterator[Finding]:
    """Finds modules beside ATTENTION that cannot be built, and says why."""
    manifest, known = request.manifest, request.tree.module_names()
    for spec in manifest.modules:
        if spec.name in ATTENTION or spec.name not in known:
            continue
        place = manifest.place("modules", spec.index, "name")
        kind = module_kinds.classify(
            request.tree, spec.name, overrides=spec.overrides, drop_srcs=spec.drop_srcs
        )
        if kind.kind == "needs_torch":
            yield module_kinds.torch_finding(place, spec.name, kind)
        elif manifest.module_mode(spec, request.mode) != "pybind":
            yield Finding(
                manifest.place("modules", spec.index, "mode"),
                f"{spec.name} in mode cpp_itfs",
                f"mode pybind: only {' and '.join(ATTENTION)} have a C++ interface",
                f'write mode = "pybind" in the [[modules]] table of {spec.name}',
            )


def _unserved(manifest: Manifest) -> Iterator[Finding]:
    """Finds what a plan does not follow: an error where the library would be another one."""
    for spec in manifest.modules:
        own = ATTENTION[spec.name].asm_subdir if spec.name in ATTENTION else ""
        others = [subdir for subdir in spec.hsa_subdirs or () if subdir != own]
        if others:
            yield Finding(
                manifest.place("modules", spec.index, "hsa_subdirs"),
                f"{', '.join(others)}, whose code objects nothing in {spec.name} launches",
                f"{own or 'nothing: the module has no assembly kernels'}, or [] for none",
                f'hsa_subdirs = ["{own}"]' if own else "remove hsa_subdirs",
            )
        for key, _ in spec.overrides:
            if key not in (*FOLLOWED, *ADDED, *WITHOUT_EFFECT):
                yield Finding(
                    manifest.place("modules", spec.index, key),
                    f"{key}, which a plan does not follow yet",
                    f"of the keys that change AITER's entry: {', '.join((*FOLLOWED, *ADDED))}",
                    f"remove {key}",
                )


def configure(request: Request, spec: ModuleSpec) -> ModuleConfig:
    """Evaluates a module's entry of optCompilerConfig.json, as the manifest changes it.

    Raises:
        AiterError: the tree's own entry cannot be used.
        ManifestError: what the manifest puts in its place cannot.
        PlanError: a flag depends on where the tree is.
    """
    replacing = {key: value for key, value in spec.overrides if key not in ADDED}
    try:
        config = request.tree.module(spec.name, overrides=replacing.items())
    except AiterError as error:
        # A place ends with the entry's key; one that the manifest wrote is the manifest's.
        own = [f for f in error.findings if f.place.rpartition(".")[2] in replacing]
        if not own:
            raise
        raise ManifestError(
            replace(
                f,
                place=request.manifest.place("modules", spec.index, f.place.rpartition(".")[2]),
            )
            for f in own
        ) from None
    ignored = {
        "extra_ldflags": config.ldflags,
        "flags_extra_hip_per_source": config.flags_hip_per_source,
        "hip_clang_path": config.hip_clang_path,
        "third_party": config.third_party,
    }
    if any(ignored.values()):
        raise PlanError(
            Finding(
                f"optCompilerConfig.json {spec.name}.{key}",
                str(value),
                "an entry without it: a plan does not follow this key yet",
                "use an AITER whose entry has none (the 0.1.7 wheels)",
            )
            for key, value in ignored.items()
            if value
        )
    added: dict[str, tuple[str, ...]] = dict.fromkeys(ADDED.values(), ())
    for key, value in spec.overrides:
        if key in ADDED and isinstance(value, tuple):
            added[ADDED[key]] = tuple(str(item) for item in value if item)
    missing = [d for d in added["include_dirs"] if not (request.tree.root / d).is_dir()]
    if missing:
        raise ManifestError(
            Finding(
                request.manifest.place("modules", spec.index, "add_includes"),
                f"{', '.join(missing)}: no such directory in the tree",
                "directories relative to the AITER tree",
            )
        )
    # AITER gives flags for C++ to HIP sources too, and first (_write_ninja_file_to_build_library in
    # its cpp_extension.py); everything qola compiles of a module is a HIP source.
    flags_cc = config.flags_cc + added["flags_cc"]
    flags = flags_cc + config.flags_hip + added["flags_hip"]
    rooted = [flag for flag in flags if TREE_TOKEN in flag]
    if rooted:
        key = "flags_extra_cc" if rooted[0] in flags_cc else "flags_extra_hip"
        place = f"{CONFIG_FILE} {spec.name}.{key}"
        if key in replacing:
            place = request.manifest.place("modules", spec.index, key)
        raise PlanError(
            Finding(
                place,
                ", ".join(rooted),
                f"flags without the tree's path ({TREE_TOKEN}): objects must not depend on it",
            )
        )
    return replace(
        config,
        flags_cc=(),
        flags_hip=flags,
        # First, so that their headers are found before AITER's.
        include_dirs=added["include_dirs"] + config.include_dirs,
    )


def manifest_patches(manifest: Manifest, file: Path) -> tuple[PatchPin, ...]:
    """Return the patches that a manifest asks for; () when it has no patches_dir.

    Args:
        manifest: the manifest.
        file: where it is; its patches_dir is relative to the directory of this file.

    Raises:
        AiterError: patches_dir is no directory, or holds no patch.
    """
    if not manifest.patches_dir:
        return ()
    directory = file.parent / manifest.patches_dir
    return pin_patches(patch_files(directory, place=manifest.place("qola", "patches_dir")))
