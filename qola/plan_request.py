"""What to plan, with what: checked against each other before any work begins."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace

from qola import codegen
from qola.aiter import CONFIG_FILE, TREE_TOKEN, AiterTree, ModuleConfig
from qola.errors import AiterError, Finding, ManifestError, PlanError
from qola.manifest import Manifest, ModuleSpec, check_against
from qola.manifest_types import BuildMode
from qola.patch_pins import PatchPin
from qola.schema import NATIVE, SUPPORTED_ARCHS

ENTRY_POINTS = {"libmha_fwd": "mha_fwd", "libmha_bwd": "mha_bwd"}
"""The modules that can be planned, and the entry point each exports."""

FOLLOWED = ("srcs", "flags_extra_hip", "extra_include", "blob_gen_cmd")
"""Keys of optCompilerConfig.json that a module may replace, and that the plan follows."""

ADDED = {"add_flags_extra_hip": "flags_hip", "add_includes": "include_dirs"}
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
    mode: BuildMode | None = None
    rocm_version: str | None = None
    aiter_id: str = ""
    overridden: bool = False
    aiter_patches: tuple[PatchPin, ...] = ()
    patches: tuple[PatchPin, ...] = ()


def resolve_archs(request: Request) -> tuple[str, ...]:
    """Returns the archs to plan for, sorted: those of the request, else the manifest's.

    Raises:
        PlanError: none, `native`, or one there are no kernels for.
    """
    archs = tuple(sorted(set(request.archs or request.manifest.architectures)))
    place = request.manifest.place("build", "architectures")
    if request.archs:
        place = "the archs asked for instead of the manifest's"
    if not archs or NATIVE in archs:
        raise PlanError(
            Finding(
                place,
                "native" if archs else "no architectures",
                "the archs to build for: a plan must not depend on the machine that makes it",
                'write architectures = ["gfx950"], for example',
            )
        )
    unknown = [arch for arch in archs if arch not in SUPPORTED_ARCHS]
    if unknown:
        raise PlanError(
            Finding(place, ", ".join(unknown), f"archs out of {', '.join(SUPPORTED_ARCHS)}")
        )
    return archs


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
        receipts=lambda module: codegen.known_receipts(tree, module),
        aiter_id=request.aiter_id or tree.version,
        srcs_of=lambda module: configure(request, specs[module]).srcs,
        rocm_version=request.rocm_version or None,
        overridden=request.overridden,
        mode=request.mode,
        # Archs asked for replace the manifest's, whatever these are.
        archs=manifest.architectures if request.archs else SUPPORTED_ARCHS,
    )
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings)
    unplannable = [spec for spec in manifest.modules if spec.name not in ENTRY_POINTS]
    if unplannable:
        raise PlanError(
            Finding(
                manifest.place("modules", spec.index, "name"),
                f"{spec.name}, which cannot be planned yet",
                f"a module out of {', '.join(ENTRY_POINTS)}",
                "remove it from the manifest",
            )
            for spec in unplannable
        )
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


def _unserved(manifest: Manifest) -> Iterator[Finding]:
    """Finds what a plan does not follow: an error where the library would be another one."""
    for spec in manifest.modules:
        if spec.hsa_subdirs:
            yield Finding(
                manifest.place("modules", spec.index, "hsa_subdirs"),
                f"{', '.join(spec.hsa_subdirs)}, which are not embedded yet",
                "a library of Composable Kernel's kernels alone",
                severity="warning",
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
    added: dict[str, tuple[str, ...]] = {"flags_hip": (), "include_dirs": ()}
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
    flags = config.flags_hip + added["flags_hip"]
    rooted = [flag for flag in flags if TREE_TOKEN in flag]
    if rooted:
        place = f"{CONFIG_FILE} {spec.name}.flags_extra_hip"
        if "flags_extra_hip" in replacing:
            place = request.manifest.place("modules", spec.index, "flags_extra_hip")
        raise PlanError(
            Finding(
                place,
                ", ".join(rooted),
                f"flags without the tree's path ({TREE_TOKEN}): objects must not depend on it",
            )
        )
    return replace(
        config,
        flags_hip=flags,
        # First, so that their headers are found before AITER's.
        include_dirs=added["include_dirs"] + config.include_dirs,
    )
