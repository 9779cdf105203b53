"""Makes a plan: brings a manifest, an AITER tree and CK's generators together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from qola import codegen
from qola.aiter import TREE_TOKEN, AiterTree, ModuleConfig
from qola.codegen import KernelSet, Selection
from qola.digest import sha256_of_text
from qola.errors import Finding, ManifestError, PlanError
from qola.headers import closure
from qola.manifest import Manifest, ModuleSpec, check_against
from qola.manifest_types import BuildMode
from qola.plan import (
    HeaderSet,
    KernelPackage,
    Plan,
    PlannedKernel,
    PlannedModule,
    PlannedSource,
    library_file,
)
from qola.schema import NATIVE, SUPPORTED_ARCHS

ENTRY_POINTS = {"libmha_fwd": "mha_fwd", "libmha_bwd": "mha_bwd"}
"""The modules that can be planned, and the entry point each exports."""

ARCH_NEUTRAL = frozenset({"fwd_splitkv", "batch_prefill"})
"""Directions whose instances CK tags gfx9: the same source serves gfx942 and gfx950."""

PARAMETERS = {"wheel-12": 12, "wheel-15": 15, "args-config": 2}
"""Number of parameters of each signature AiterTree.entry_signature knows."""

_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
"""Include lines as CK's templates have them."""


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
    """

    name: str
    manifest: Manifest
    tree: AiterTree
    archs: tuple[str, ...] = ()
    mode: BuildMode | None = None
    rocm_version: str | None = None
    aiter_id: str = ""
    overridden: bool = False


@dataclass(frozen=True)
class _Generated:
    """A module with what its generators produced."""

    spec: ModuleSpec
    config: ModuleConfig
    kernels: KernelSet


def build_plan(
    request: Request, output: Path, *, progress: Callable[[str], None] = lambda _: None
) -> Plan:
    """Plans a manifest and writes the sources it needs.

    Args:
        request: what to plan.
        output: existing directory; gets <module>/kernels and <module>/dispatch.
        progress: called with a line when a long step begins.

    Raises:
        ManifestError: the manifest does not fit tree or toolchain.
        PlanError: it fits, but cannot be planned yet.
        AiterError: the tree cannot be read.
        CodegenError: a generator failed, or the variants leave a hole in the dispatch.
    """
    archs = _archs(request)
    warnings = [*request.manifest.warnings, *_check(request)]
    progress(f"{request.name}: generating kernel instances for {', '.join(archs)}")
    with ThreadPoolExecutor(max_workers=2) as pool:
        # Each module's generators run in processes of their own.
        generated = list(
            pool.map(lambda spec: _generate(request, spec, archs, output), request.manifest.modules)
        )
    warnings += [w for module in generated for w in module.kernels.warnings]
    header_sets, packages, kernels, modules = _assemble(request, archs, generated, output)
    return Plan(
        name=request.name,
        namespace=request.manifest.namespace,
        archs=archs,
        manifest=request.manifest.to_dict(),
        aiter={
            "generation": request.tree.generation,
            "id": request.aiter_id,
            "version": request.tree.version,
        },
        packages=packages,
        header_sets=header_sets,
        kernels=kernels,
        modules=modules,
        warnings=tuple(warnings),
        inputs=_inputs(request.tree, header_sets),
    )


def _archs(request: Request) -> tuple[str, ...]:
    archs = tuple(sorted(set(request.archs or request.manifest.architectures)))
    place = request.manifest.place("build", "architectures")
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


def _check(request: Request) -> list[Finding]:
    """Compares the manifest with tree and toolchain; returns the warnings."""
    tree, manifest = request.tree, request.manifest
    findings = check_against(
        manifest,
        modules=tree.module_names(),
        receipts=lambda module: codegen.known_receipts(
            tree.root / tree.fmha_dir, "bwd" if module == "libmha_bwd" else "fwd"
        ),
        aiter_id=request.aiter_id or tree.version,
        srcs_of=lambda module: tree.module(module).srcs,
        rocm_version=request.rocm_version or None,
        overridden=request.overridden,
        mode=request.mode,
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
    return list(findings)


def _generate(
    request: Request, spec: ModuleSpec, archs: tuple[str, ...], output: Path
) -> _Generated:
    config = request.tree.module(spec.name, overrides=spec.overrides)
    forward = spec.name == "libmha_fwd"
    selection = Selection(
        receipt=spec.receipt,
        variants=request.manifest.fwd_variants if forward else request.manifest.bwd_variants,
        drop_directions=frozenset(spec.drop_directions),
    )
    kernels = codegen.generate(request.tree, config, selection, archs, output / spec.name)
    return _Generated(spec, config, kernels)


def _assemble(
    request: Request, archs: tuple[str, ...], generated: Sequence[_Generated], output: Path
) -> tuple[
    tuple[HeaderSet, ...],
    dict[str, KernelPackage],
    tuple[PlannedKernel, ...],
    tuple[PlannedModule, ...],
]:
    header_sets: dict[str, HeaderSet] = {}
    packages: dict[str, KernelPackage] = {}
    kernels: list[PlannedKernel] = []
    modules: list[PlannedModule] = []
    for module in generated:
        copts = _copts(module.config)
        own: list[int] = []
        for direction in sorted({kernel.direction for kernel in module.kernels.kernels}):
            instances = [k for k in module.kernels.kernels if k.direction == direction]
            files = [output / module.spec.name / k.file for k in instances]
            header_sets[direction] = _header_set(request.tree, module.config, direction, files)
            package = _package_name(
                direction, archs, copts, request.tree.module(module.spec.name)
            )
            packages[package] = KernelPackage(copts, direction)
            for kernel in instances:
                own.append(len(kernels))
                kernels.append(
                    PlannedKernel(
                        name=kernel.name,
                        package=package,
                        direction=direction,
                        role=kernel.role,
                        archs=kernel.archs,
                        sha256=kernel.sha256,
                        fields=dict(kernel.fields),
                        variants=kernel.kept_by,
                    )
                )
        sources = tuple(
            PlannedSource(Path(s.name).stem, f"{module.spec.name}/{s.file}", s.direction, s.role, s.sha256)
            for s in module.kernels.sources
        )
        entry = ENTRY_POINTS[module.spec.name]
        header_sets[module.spec.name] = _header_set(
            request.tree,
            module.config,
            module.spec.name,
            [output / source.file for source in sources],
            also=(f"{entry}.h",),
        )
        modules.append(
            PlannedModule(
                name=module.spec.name,
                library=library_file(request.manifest.namespace, module.spec.name),
                entry=entry,
                parameters=PARAMETERS[request.tree.entry_signature(entry)],  # type: ignore[arg-type]
                receipt=module.spec.receipt,
                copts=copts,
                kernels=tuple(own),
                sources=sources,
                headers=module.spec.name,
            )
        )
    ordered = tuple(header_sets[name] for name in sorted(header_sets))
    return ordered, dict(sorted(packages.items())), tuple(kernels), tuple(modules)


def include_dirs(tree: AiterTree, config: ModuleConfig) -> tuple[str, ...]:
    """Include directories of a module in AITER's order.

    Source: build_module in aiter/jit/core.py; its folder of generated files is left out, because
    no generated source includes another.
    """
    ck_helper = tree.ck_dir.rsplit("/", 1)[0] + "/ck_helper"
    dirs = [ck_helper, f"{tree.ck_dir}/include", f"{tree.ck_dir}/library/include"]
    dirs += [f"{tree.csrc_dir}/include", *config.include_dirs]
    return tuple(dict.fromkeys(dirs))


def _header_set(
    tree: AiterTree,
    config: ModuleConfig,
    name: str,
    files: Iterable[Path],
    also: Iterable[str] = (),
) -> HeaderSet:
    dirs = include_dirs(tree, config)
    # Thousands of kernel instances share a handful of include lines.
    lines = {f'#include "{header}"' for header in also}
    for file in files:
        lines.update(_INCLUDE.findall(file.read_text(encoding="utf-8")))
    headers = closure(tree.root, dirs, sorted(lines))
    # A directory none of the headers comes from needs no -I.
    used = tuple(d for d in dirs if any(header.startswith(d + "/") for header in headers))
    return HeaderSet(name, used, headers)


def _copts(config: ModuleConfig) -> tuple[str, ...]:
    """The module's own compiler flags, in AITER's order."""
    rooted = [flag for flag in config.flags_hip if TREE_TOKEN in flag]
    if rooted:
        raise PlanError(
            Finding(
                f"optCompilerConfig.json {config.name}.flags_extra_hip",
                ", ".join(rooted),
                "flags without the tree's path: objects must not depend on where it is",
            )
        )
    return tuple(flag for flag in config.flags_hip if flag)


def _package_name(
    direction: str, archs: tuple[str, ...], copts: tuple[str, ...], own: ModuleConfig
) -> str:
    """Package of the kernel repository: the direction and whatever else decides the objects.

    Two manifests that agree on it meet in one package, and so in one target per kernel. A kernel
    instance of ARCH_NEUTRAL directions is compiled for all archs of its manifest; elsewhere the
    instance's name has the arch in it.
    """
    parts = [direction]
    if direction in ARCH_NEUTRAL:
        parts += archs
    if copts != _copts(own):
        parts.append(sha256_of_text(" ".join(copts))[:8])
    return "_".join(parts)


def _inputs(tree: AiterTree, header_sets: Iterable[HeaderSet]) -> tuple[str, ...]:
    """Files of the tree a plan depends on: configuration, generators and every header."""
    files = {file for headers in header_sets for file in headers.files}
    files.add("aiter/jit/optCompilerConfig.json")
    for directory in (tree.fmha_dir, f"{tree.csrc_dir}/cpp_itfs"):
        files.update(
            path.relative_to(tree.root).as_posix()
            for path in (tree.root / directory).rglob("*.py")
        )
    return tuple(sorted(files))
