"""Checks of a request before any work begins: manifest against tree, toolchain and patches."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from qola.aiter import module_kinds
from qola.aiter.attention import ATTENTION, is_assembly_alone
from qola.aiter.module_config import CONFIG_KEYS
from qola.aiter.module_kinds import ModuleKind
from qola.aiter.tree import CONFIG_FILE, AiterTree, ModuleConfig
from qola.codegen.asm.path import launched_subdirs
from qola.codegen.ck.receipts import FAMILIES, known_receipts
from qola.common.layout import OWN_PATCHES
from qola.common.suggestions import did_you_mean, nearest
from qola.kernel.rules import validate
from qola.manifest.constants import ADDABLE, describe_receipt
from qola.manifest.fields import OVERRIDE_KEYS, REFUSED_KEYS
from qola.manifest.load import Manifest
from qola.manifest.values import either, quote
from qola.plan.functions import check_functions
from qola.plan.request import Request
from qola_base.errors import Finding, ManifestError, PlanError

_WITHOUT_EFFECT = ("verbose", "is_experimental")

_SUPPORTED = tuple(sorted(OVERRIDE_KEYS - {*REFUSED_KEYS, *_WITHOUT_EFFECT}))
"""Keys that change a module's entry of optCompilerConfig.json, and that a plan supports."""

_COMMIT = re.compile(r"^([0-9a-f]{7,40})$|\+g([0-9a-f]{7,40})(?:\.|$)")
"""A commit, or a version of setuptools_scm's, which may end in one: 0.1.10.dev3+g1a2b3c4d5."""

LIBRARY = {
    direction: module for module, of in ATTENTION.items() for direction in FAMILIES[of.direction]
}
"""The library with the kernels of each direction."""


def check_request(
    request: Request, config_of: Callable[[str], ModuleConfig], kind_of: Callable[[str], ModuleKind]
) -> list[Finding]:
    """Compare the manifest with tree and toolchain; return warnings.

    Args:
        config_of: evaluates a module's entry; only called if the comparison needs it.
        kind_of: classifies a module.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but contains something that a plan does not support.
    """
    manifest, known = request.manifest, frozenset(request.tree.module_names())
    findings = [
        *_check_aiter(request),
        *_check_rocm(request),
        *_check_modules(manifest, known),
        *check_functions(manifest, request.tree),
        *_check_modes(request, known),
        *_check_receipts(request, known),
        *_check_drop_srcs(request, config_of, known),
    ]
    if any(finding.severity == "error" for finding in findings):
        raise ManifestError(findings)
    if wrong_mode := list(_wrong_mode(request, kind_of)):
        raise PlanError(wrong_mode)
    unsupported = [
        *check_requested(manifest),
        *_wrong_patches(request),
        *_unused_subdirs(request, config_of),
        *_unsupported_keys(manifest),
        *unknown_keys(request.tree),
    ]
    if any(finding.severity == "error" for finding in unsupported):
        raise PlanError(unsupported)
    return [*findings, *unsupported]


def _check_aiter(request: Request) -> Iterator[Finding]:
    manifest, head, version = request.manifest, request.head, request.tree.version
    # A checkout's file with the version may be of an earlier commit.
    aiter_id = request.aiter_id or head.commit or version
    wanted = manifest.aiter_commit
    if wanted is None or any(_same_source(wanted, name) for name in (aiter_id, *head.tags)):
        return
    place = manifest.place("qola", "aiter_commit")
    if head.problem and not request.spec.override_aiter_commit:
        yield Finding(
            place,
            f"{quote(wanted)}, but the commit of the AITER checkout is unknown: {head.problem}",
            "a checkout whose HEAD git can read",
            "--override-aiter-commit plans without this check, and so does "
            "override_aiter_commit = True of qola.manifest",
        )
    elif not aiter_id:
        expected = "an AITER source whose commit or version is known"
        yield Finding(place, f"{quote(wanted)}, which cannot be checked", expected, "", "warning")
    elif request.spec.override_aiter_commit:
        found = f"{quote(wanted)}, overridden: the AITER source is {aiter_id}"
        yield Finding(place, found, "kernels of the source, not of the manifest", "", "warning")
    else:
        yield Finding(
            place,
            f"{quote(wanted)}, while the AITER source is {aiter_id}",
            "the commit or version of the AITER source",
            "--override-aiter-commit plans with the source, and so does override_aiter_commit = "
            f'True of qola.manifest; aiter_commit = "{aiter_id}" names the source',
        )


def _same_source(wanted: str, aiter_id: str) -> bool:
    """Compare commits by their common prefix (7 or more digits), other names in full."""
    commits = [_COMMIT.search(text.lower()) for text in (wanted, aiter_id)]
    if all(commits):
        short, long = sorted((match[1] or match[2] for match in commits if match), key=len)
        return long.startswith(short)
    return wanted.removeprefix("v") == aiter_id.removeprefix("v")


def _check_rocm(request: Request) -> Iterator[Finding]:
    version, wanted = request.rocm_version, request.manifest.rocm_versions
    if version and wanted and not any(f"{version}.".startswith(f"{prefix}.") for prefix in wanted):
        yield Finding(
            request.manifest.place("qola", "rocm_versions"),
            f"ROCm {version} in use, {either(wanted)} wanted",
            "a ROCm whose version begins with one of these",
            f"use ROCm {wanted[-1]}, or add {quote('.'.join(version.split('.')[:2]))} to the list",
        )


def _check_modules(manifest: Manifest, known: frozenset[str]) -> Iterator[Finding]:
    for module in manifest.modules:
        if module.name not in known:
            yield Finding(
                manifest.place("modules", module.index, "name"),
                f"unknown module {quote(module.name)}",
                f"a module of this AITER: {either(sorted(known))}",
                did_you_mean(module.name, known),
            )


def _check_modes(request: Request, known: frozenset[str]) -> Iterator[Finding]:
    manifest, mode = request.manifest, request.spec.mode
    if mode and manifest.for_aiter:
        yield Finding(
            manifest.place("build", "mode"),
            f"mode aiter, and --mode {mode}",
            "modules of a manifest in mode aiter in this mode only",
            "leave out --mode, or write another manifest",
        )
    for module in manifest.modules:
        attention = module.name in known and module.name in ATTENTION
        if attention and manifest.module_mode(module, mode) == "pybind":
            yield Finding(
                manifest.place("modules", module.index, "mode"),
                f"{module.name} in mode pybind{'' if module.mode else ' (by default)'}",
                "mode cpp_itfs: AITER and qola build a C++ library in either mode",
                f'write mode = "cpp_itfs" in the [[modules]] table of {module.name}',
                "warning",
            )


def _check_receipts(request: Request, known: frozenset[str]) -> Iterator[Finding]:
    manifest = request.manifest
    uses = [("modules", spec.index, spec.name, spec.receipt) for spec in manifest.modules]
    for library, variants in (
        ("libmha_fwd", manifest.fwd_variants),
        ("libmha_bwd", manifest.bwd_variants),
    ):
        uses += [(variant.table, variant.index, library, variant.receipt) for variant in variants]
    for table, index, module, receipt in uses:
        if receipt is None or module not in known:
            continue
        choices = sorted(known_receipts(request.tree, module))
        if receipt in choices:
            continue
        meant = nearest(str(receipt), map(str, choices))
        yield Finding(
            manifest.place(table, index, "receipt"),
            f"receipt {describe_receipt(receipt)}, unknown to this CK",
            f"one of {either(map(describe_receipt, choices))}",
            meant and f"did you mean {meant}?",
        )


def _check_drop_srcs(
    request: Request, config_of: Callable[[str], ModuleConfig], known: frozenset[str]
) -> Iterator[Finding]:
    for module in request.manifest.modules:
        if module.name not in known or not module.drop_srcs:
            continue
        # Some keys of modules with PyTorch cannot be evaluated.
        config = (
            config_of(module.name)
            if module.name in ATTENTION
            else module_kinds.deciding_config(request.tree, module.name, module.overrides)
        )
        names = {src.rpartition("/")[2] for src in config.srcs}
        if not names:
            continue  # the wheel's libraries list none, and ROCm/QoLA's manifests drop some
        for src in module.drop_srcs:
            if src not in names:
                yield Finding(
                    request.manifest.place("modules", module.index, "drop_srcs"),
                    f"{quote(src)}, which {module.name} does not have",
                    f"file names among {either(sorted(names))}",
                    did_you_mean(src, names) or f"remove {quote(src)}",
                    "warning",
                )


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
        place, name, direction = spec.place, spec.config.name, spec.config.direction
        library = LIBRARY[direction]
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
    directory = manifest.patches_dir
    if directory != OWN_PATCHES:
        joined = posixpath.join(posixpath.dirname(manifest.file), directory)
        directory = posixpath.normpath(joined)
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


def _unsupported_keys(manifest: Manifest) -> Iterator[Finding]:
    """Find keys that would change a library, and that a plan does not support."""
    for spec in manifest.modules:
        for key, _ in spec.overrides:
            if key in REFUSED_KEYS:
                yield Finding(
                    manifest.place("modules", spec.index, key),
                    f"{key}, a key of ROCm/QoLA that a plan does not support",
                    f"one of the keys that change AITER's entry: {', '.join(_SUPPORTED)}",
                    f"remove {key}",
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
