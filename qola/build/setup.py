"""Resolves the request of a build: its modules, AITER source, archs and forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qola.build.forms import choose_forms
from qola.checkout.source import AiterSource, choose_for
from qola.common.layout import FUNCTIONS, TRITON
from qola.manifest.archs import choose_archs, choose_modules, native_archs
from qola.manifest.load import Manifest, ModuleSpec, load
from qola.plan.resolve import all_modules
from qola.plan.spec import BuildRequest, BuildSpec, Forms


@dataclass(frozen=True)
class ResolvedBuild:
    """A build with its manifest and AITER source.

    Attributes:
        modules: the modules to build.
        spec: has checked archs, () for those of the manifest.
        forms: `lazy` is chosen.
        triton: build the Triton kernels, too.
        functions: build the functions of AITER's second JIT, too.
    """

    manifest: Manifest
    file: Path
    modules: tuple[ModuleSpec, ...]
    aiter: AiterSource
    spec: BuildSpec = field(default_factory=BuildSpec)
    forms: Forms = field(default_factory=Forms)
    triton: bool = False
    functions: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the modules, of the library of Triton kernels, and of all functions."""
        others = {TRITON: self.triton, FUNCTIONS: self.functions}
        names = [module.name for module in self.modules]
        return [*names, *(name for name, is_built in others.items() if is_built)]

    @property
    def is_whole(self) -> bool:
        """Whether it builds all of the manifest, not some groups."""
        everything = len(self.modules) >= len(self.manifest.modules)
        return everything and self.functions == bool(self.manifest.functions)


def resolve_build(request: BuildRequest, environ: Mapping[str, str]) -> ResolvedBuild:
    """Read the manifest and find the AITER source; write at most a tree at `aiter.root`.

    Raises:
        QolaError: the manifest, the AITER tree or this machine is at fault.
    """
    file = Path(request.manifest_path).absolute()
    manifest = load(file, display=Path(request.manifest_path).as_posix())
    spec, options = request.spec, request.aiter
    modules = (
        choose_modules(manifest, request.groups)
        if request.groups
        else all_modules(manifest, spec.mode)
    )
    # Groups have modules only.
    triton = bool(manifest.triton) and not request.groups
    forms = choose_forms(request.forms, environ, manifest, modules, triton)
    archs = choose_archs(spec.archs, manifest, environ.get("GPU_ARCHS", ""), native_archs)
    aiter, other_aiter = choose_for(manifest, file.parent, options, environ)
    mode = None if spec.mode == manifest.mode else spec.mode
    return ResolvedBuild(
        manifest,
        file,
        modules,
        aiter,
        replace(spec, archs=archs, mode=mode, override_aiter_commit=other_aiter),
        forms,
        triton=triton,
        functions=bool(manifest.functions) and not request.groups,
    )
