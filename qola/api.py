"""ROCm/QoLA's Python interface: builds a manifest, or fetches its prebuilt bundle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.build import PLAN, build_all, install_build
from qola.build.forms import (
    Forms,
    check_jax,
    check_lazy,
    check_split,
    check_static,
    check_wheel,
    choose_lazy,
)
from qola.build.install import BuildResult
from qola.build.setup import resolve_build, set_up
from qola.checkout.request import DEFAULT_REMOTE, AiterOptions, aiter_request, default_aiter_root
from qola.checkout.source import checkout
from qola.codegen.types import LEVELS, Level
from qola.common.ruleset import ruleset_root
from qola.manifest.archs import choose_modules
from qola.manifest.archs import split as split_archs
from qola.manifest.load import load
from qola.manifest.types import BuildMode
from qola.plan.spec import BuildRequest, BuildSpec
from qola.prebuilt.fetch import first_prebuilt
from qola.prebuilt.options import PrebuiltOptions
from qola_base.progress import library_progress, log


def build_kernels(
    manifest_path: str | Path,
    *,
    output_dir: str | Path,
    aiter_root: str | Path | None = None,
    archs: Sequence[str] | None = None,
    verbose: bool = False,
    build_mode: BuildMode | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    skip_checkout: bool = False,
    groups: Sequence[str] | None = None,
    aiter_remote: str = DEFAULT_REMOTE,
    keep_going: bool = True,
    jobs: int | None = None,
    bazel_args: Sequence[str] = (),
    lazy: bool | None = None,
    static: bool = False,
    split: bool = False,
    wheel: str = "",
    jax: bool = False,
    require: Level = LEVELS[0],
    prebuilt: PrebuiltOptions | None = None,
    quiet: bool = False,
    environ: Mapping[str, str] | None = None,
) -> BuildResult:
    """Build the modules of a manifest and install them, as `qola build` does.

    The arguments up to `groups` are those of ROCm/QoLA (docs/guide/qola-build.md); the others are
    options of `qola build` (docs/reference/cli.md).

    Args:
        output_dir: directory of the bundle (docs/guide/bundle.md) of the successful modules.
        archs: archs instead of the manifest's; an item may be a list separated by ;.
        aiter_root: directory of the AITER tree. By default Bazel fetches and caches it.
        aiter_commit: commit, tag or branch instead of the manifest's [qola].aiter_commit.
        patches_dir: folder of patches instead of [qola].patches_dir; an empty one for none.
        skip_checkout: use aiter_root unchanged, without `aiter_commit` and `patches_dir`.
        lazy: by default NVTE_CK_JIT decides. Python modules are never lazy; in mode aiter true is
            an error.
        split: device code in packs, one per arch (docs/guide/bundle.md#split-by-arch); prebuilt
            bundles are not used.
        wheel: version of a Python wheel of the bundle in dist/, "" for none; with a wheel, prebuilt
            bundles are not used.
        jax: the wheel also contains attention for JAX (docs/guide/jax.md); requires `wheel`.
        require: required level of each direction of Composable Kernel; above opaque, prebuilt
            bundles are not used.
        prebuilt: sources of prebuilt bundles (docs/guide/prebuilt.md); by default those of the
            manifest and the environment.
        quiet: log only warnings.
        environ: the environment: GPU_ARCHS, NVTE_CK_JIT, QOLA_BAZEL,
            QOLA_CACHE_HOME, and those of docs/guide/prebuilt.md; by default the process's.

    Progress is logged to the logger "qola", and shown on standard error unless the program handles
    it.

    Returns:
        The content of manifest.json in `output_dir`. Its `summary` counts failed modules; its
        `bundle_error` says why the bundle or the wheel of the others is missing.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault. `output_dir` is unchanged.
        OSError: `output_dir` cannot be written to.
    """
    environ = os.environ if environ is None else environ
    request = BuildRequest(
        manifest_path,
        BuildSpec(split_archs(archs or ()), build_mode, require),
        AiterOptions(aiter_root, aiter_commit, aiter_remote, patches_dir, skip_checkout),
        tuple(groups or ()),
    )
    options = BuildOptions(
        keep_going=keep_going,
        jobs=jobs,
        subcommands=verbose,
        more=(f"--output_groups=+{PLAN}", *bazel_args),
        quiet=quiet,
    )
    output = Path(output_dir).absolute()
    with library_progress(quiet=quiet):
        forms = Forms(choose_lazy(lazy, environ), static, split)
        chosen = resolve_build(request, environ)
        check_lazy(forms.lazy, lazy, chosen.manifest)
        check_wheel(wheel, chosen.modules, chosen.triton, chosen.manifest.for_aiter)
        check_jax(jax, wheel, chosen.modules, chosen.manifest)
        check_split(split, forms.lazy, static, chosen.modules, chosen.triton)
        if require != LEVELS[0]:
            log.info(f"--require {require}: only a plan shows it, so prebuilt bundles are not used")
        elif split:
            log.info("--split: prebuilt bundles, which are not split, are not used")
        elif wheel:
            log.info("--wheel: only Bazel packs a wheel, so prebuilt bundles are not used")
        else:
            wanted = prebuilt or PrebuiltOptions()
            fetched = first_prebuilt(chosen, forms, bazel_args, wanted, environ, output)
            if fetched:
                return fetched
        setup = set_up(chosen, environ)
        check_static(static, forms.lazy, chosen.modules)
        with setup.workspace():
            built = build_all(setup, forms, options, environ, wheel, jax=jax)
            return install_build(chosen, forms.lazy, built, output)


def checkout_aiter(
    manifest_path: str | Path | None = None,
    aiter_root: str | Path | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    groups: Sequence[str] | None = None,
    *,
    aiter_remote: str = DEFAULT_REMOTE,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Prepare the patched AITER tree of `build_kernels` without building; return its absolute path.

    The arguments up to `groups` are those of ROCm/QoLA. A commit or folder of patches as argument
    takes precedence over the manifest's. By default it is qola's pinned wheel, without patches.

    Args:
        manifest_path: manifest whose [qola] aiter_commit and patches_dir apply.
        aiter_root: a directory that is missing, empty, or made by this function; by default one
            in the cache.
        aiter_commit: commit, tag, branch, or version of the pinned wheel.
        groups: refused unless the manifest has them; the tree is the same for all groups.

    Raises:
        ManifestError: the manifest is not valid, or has no such group.
        AiterError: the directory has other content, or a patch does not fit; it is unchanged.
    """
    environ = os.environ if environ is None else environ
    root = Path(aiter_root).absolute() if aiter_root else default_aiter_root(environ)
    manifest, folder = None, Path.cwd()
    if manifest_path is not None:
        manifest = load(Path(manifest_path), display=Path(manifest_path).as_posix())
        folder = Path(manifest_path).absolute().parent
        choose_modules(manifest, groups or ())
    options = AiterOptions(root, aiter_commit, aiter_remote, patches_dir)
    request = aiter_request(manifest, folder, ruleset_root(), options)
    with library_progress():
        return str(checkout(request, root))
