"""What every build of a manifest begins with: Bazel, manifest, AITER source and workspace."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from qola import locking, workspace
from qola.aiter_source import AiterRequest, AiterSource, choose, use_as_is
from qola.bazel_run import find_bazel
from qola.choices import (
    DEFAULT_REMOTE,
    cache_directory,
    choose_archs,
    choose_modules,
    choose_patches,
)
from qola.manifest import Manifest, ModuleSpec, load
from qola.manifest_types import BuildMode
from qola.native import native_archs
from qola.resources import ruleset_root

Progress = Callable[[str], None]


@dataclass(frozen=True)
class BuildRequest:
    """What a user says about a build; `qola.build.build_kernels` says what each means."""

    manifest_path: str | Path
    aiter_root: str | Path | None = None
    archs: Sequence[str] | None = None
    build_mode: BuildMode | None = None
    aiter_commit: str | None = None
    patches_dir: str | Path | None = None
    skip_checkout: bool = False
    groups: Sequence[str] | None = None
    aiter_remote: str = DEFAULT_REMOTE


@dataclass(frozen=True)
class Forms:
    """Which kinds of libraries a build makes.

    Attributes:
        lazy: lazy ones, or ones with their kernels inside.
        static: an archive of the attention modules besides.
    """

    lazy: bool = False
    static: bool = False


@dataclass(frozen=True)
class Setup:
    """What a request comes to.

    Attributes:
        bazel: how to start Bazel.
        manifest: the manifest.
        file: its absolute path.
        modules: the modules to build.
        archs: archs instead of the manifest's, () for those.
        aiter: the AITER source.
        made: the workspace.
        directory: where the workspace is.
        bazel_version: content of .bazelversion.
    """

    bazel: list[str]
    manifest: Manifest
    file: Path
    modules: tuple[ModuleSpec, ...]
    archs: tuple[str, ...]
    aiter: AiterSource
    made: workspace.Workspace
    directory: Path
    bazel_version: str

    def write(self) -> None:
        """Write the workspace."""
        workspace.write(self.directory, self.made.files(self.bazel_version, self.directory))


@dataclass(frozen=True)
class Chosen:
    """What a request means, before there is anything of Bazel's.

    Attributes:
        manifest: the manifest.
        file: its absolute path.
        modules: the modules to build.
        archs: archs instead of the manifest's, () for those.
        source: what is asked for of AITER.
        aiter: the AITER source.
    """

    manifest: Manifest
    file: Path
    modules: tuple[ModuleSpec, ...]
    archs: tuple[str, ...]
    source: AiterRequest
    aiter: AiterSource


def choose_all(request: BuildRequest, environ: Mapping[str, str], progress: Progress) -> Chosen:
    """Return what a request means; nothing is written but a tree of AITER that is asked for.

    Args:
        request: what is asked for.
        environ: the environment: GPU_ARCHS, XDG_CACHE_HOME.
        progress: called with a line when a long step begins.

    Raises:
        QolaError: the manifest, the AITER tree or this machine is at fault.
    """
    file = Path(request.manifest_path).absolute()
    manifest = load(file, display=Path(request.manifest_path).as_posix())
    modules = choose_modules(manifest, request.groups or ())
    gpu_archs = environ.get("GPU_ARCHS", "")
    archs = choose_archs(request.archs or (), manifest, gpu_archs, native_archs)
    source = aiter_request(
        manifest,
        file.parent,
        ruleset_root(),
        request.aiter_root,
        request.aiter_commit,
        request.aiter_remote,
        request.patches_dir,
    )
    if request.skip_checkout:
        aiter = use_as_is(source.root or default_aiter_root(environ))
    else:
        aiter = choose(source, progress)
    return Chosen(manifest, file, modules, archs, source, aiter)


def set_up(
    request: BuildRequest,
    environ: Mapping[str, str],
    progress: Progress,
    chosen: Chosen | None = None,
) -> Setup:
    """Return what a request comes to; nothing is written but a tree of AITER that is asked for.

    Args:
        request: what is asked for.
        environ: the environment: GPU_ARCHS, QOLA_BAZEL, XDG_CACHE_HOME.
        progress: called with a line when a long step begins.
        chosen: what `choose_all` returned for it, if that is known.

    Raises:
        QolaError: the manifest, the AITER tree or this machine is at fault.
    """
    ruleset = ruleset_root()
    bazel = find_bazel(environ, ruleset)
    chosen = chosen or choose_all(request, environ, progress)
    manifest, file, source, aiter = chosen.manifest, chosen.file, chosen.source, chosen.aiter
    cache = cache_directory(environ)
    mode = request.build_mode
    made = workspace.Workspace(
        name=workspace.repository_name(file),
        manifest=file.read_text(encoding="utf-8"),
        # All of them, so that builds of different groups have one workspace in common.
        modules=tuple(module.name for module in manifest.modules),
        ruleset=ruleset,
        aiter=aiter,
        archs=chosen.archs,
        mode=None if mode == manifest.mode else mode,
        # What is asked for wins over what the manifest says of AITER; patches_dir is in the source.
        override_aiter_commit=request.skip_checkout
        or manifest.patches_dir is not None
        or (source.commit_asked and manifest.aiter_commit not in (None, source.commit)),
        disk_cache=cache / "disk",
    )
    directory = workspace.directory_of(cache, file, ruleset)
    version = (ruleset / ".bazelversion").read_text(encoding="utf-8")
    return Setup(
        bazel, manifest, file, chosen.modules, chosen.archs, aiter, made, directory, version
    )


def default_aiter_root(environ: Mapping[str, str]) -> Path:
    """Return the tree of `qola checkout`, and of `qola build --skip-checkout`, without a name."""
    return cache_directory(environ) / "aiter"


def aiter_request(
    manifest: Manifest | None,
    folder: Path,
    ruleset: Path,
    root: str | Path | None,
    commit: str | None,
    remote: str,
    patches_dir: str | Path | None,
) -> AiterRequest:
    """Return what is asked for of AITER: the arguments win over the manifest, if there is one."""
    pin = json.loads((ruleset / "third_party/aiter/wheel.json").read_text(encoding="utf-8"))
    asked = Path(patches_dir).absolute() if patches_dir else None
    return AiterRequest(
        root=Path(root).absolute() if root else None,
        commit=commit or (manifest.aiter_commit if manifest else None),
        commit_asked=bool(commit),
        remote=remote,
        patches_dir=choose_patches(asked, manifest, folder),
        pin=pin,
    )


def workspace_locked(directory: Path, progress: Progress) -> AbstractContextManager[None]:
    """Keep a second build of the same manifest waiting: they share a workspace."""
    return locking.locked(directory, "build of this manifest", progress)
