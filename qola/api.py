"""The Python interface: builds a manifest, or fetches its prebuilt bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.build import build_all, install_build
from qola.build.forms import excluded
from qola.build.install import BuildResult
from qola.build.setup import resolve_build
from qola.build.workspace import set_up
from qola.checkout.request import AiterOptions, aiter_request, default_aiter_root
from qola.checkout.source import checkout
from qola.codegen.types import LEVELS
from qola.manifest.archs import choose_modules
from qola.manifest.load import load
from qola.plan.spec import BuildRequest, BuildSpec, Forms
from qola.prebuilt.fetch import first_prebuilt
from qola.prebuilt.options import PrebuiltOptions
from qola_base.progress import library_progress, log

__all__ = [
    "AiterOptions",
    "BuildOptions",
    "BuildRequest",
    "BuildResult",
    "BuildSpec",
    "Forms",
    "PrebuiltOptions",
    "build_kernels",
    "checkout_aiter",
]

_DEFAULT_OPTIONS = BuildOptions()
_DEFAULT_PREBUILT = PrebuiltOptions()
_PINNED = AiterOptions()


def build_kernels(
    request: BuildRequest,
    output_dir: str | Path,
    options: BuildOptions = _DEFAULT_OPTIONS,
    prebuilt: PrebuiltOptions = _DEFAULT_PREBUILT,
    *,
    environ: Mapping[str, str] | None = None,
) -> BuildResult:
    """Build the modules of a manifest and install them, as `qola build` does.

    Args:
        output_dir: directory of the bundle (docs/guide/bundle.md) of the successful modules.
        options: how Bazel builds.
        prebuilt: sources of prebuilt bundles (docs/guide/prebuilt.md); by default those of the
            manifest and the environment. Bundles are not used if the request has a form or a
            required level that they do not have.
        environ: the environment: GPU_ARCHS, QOLA_BAZEL, QOLA_CACHE_HOME, NVTE_CK_JIT if
            `request.forms.lazy` is None, and those of docs/guide/prebuilt.md; by default the
            process's.

    Progress is logged to the logger "qola", and shown on standard error unless the program handles
    it.

    Returns:
        The content of manifest.json in `output_dir`. Its `summary` counts failed modules; its
        `bundle_error` says why the bundle or the wheel of the others is missing.

    Raises:
        QolaError: nothing could be built: the request, the manifest, the AITER tree, the plan or
            this machine is at fault. `output_dir` is unchanged.
        OSError: `output_dir` cannot be written to.
    """
    environ = os.environ if environ is None else environ
    output = Path(output_dir).absolute()
    with library_progress(quiet=options.quiet):
        chosen = resolve_build(request, environ)
        # Only a plan shows levels.
        level = f"--require {request.spec.require}" if request.spec.require != LEVELS[0] else ""
        if reason := level or excluded(chosen.forms, "prebuilt"):
            log.info(f"{reason}: prebuilt bundles do not have it, so they are not used")
        else:
            fetched = first_prebuilt(chosen, options.more, prebuilt, environ, output)
            if fetched:
                return fetched
        workspace = set_up(chosen, environ)
        with workspace.opened():
            return install_build(chosen, build_all(workspace, options, environ), output)


def checkout_aiter(
    manifest_path: str | Path | None = None,
    aiter: AiterOptions = _PINNED,
    groups: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Prepare the patched AITER tree of `build_kernels` without building; return its absolute path.

    A commit or folder of patches as argument takes precedence over the manifest's. By default it is
    qola's pinned wheel, without patches.

    Args:
        manifest_path: manifest whose [qola] aiter_commit and patches_dir apply.
        aiter: `root` is a directory that is missing, empty, or made by this function; by default
            one in the cache.
        groups: refused unless the manifest has them; the tree is the same for all groups.

    Raises:
        ManifestError: the manifest is not valid, or has no such group.
        AiterError: the directory has other content, or a patch does not fit; it is unchanged.
    """
    environ = os.environ if environ is None else environ
    root = Path(aiter.root).absolute() if aiter.root else default_aiter_root(environ)
    manifest, folder = None, Path.cwd()
    if manifest_path is not None:
        manifest = load(Path(manifest_path), display=Path(manifest_path).as_posix())
        folder = Path(manifest_path).absolute().parent
        choose_modules(manifest, groups)
    request = aiter_request(manifest, folder, aiter)
    with library_progress():
        return str(checkout(request, root))
