"""`import qola`: what ROCm/QoLA's users call. A prebuilt bundle first, else a build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.build.bazel import BuildOptions
from qola.build.build import PLAN, _install, build_all
from qola.build.forms import Forms, check_static, check_wheel, choose_lazy
from qola.build.install import BuildResult
from qola.build.setup import resolve_build, set_up
from qola.checkout.request import (
    DEFAULT_REMOTE,
    AiterOptions,
    aiter_request,
    default_aiter_root,
)
from qola.checkout.source import checkout
from qola.codegen.types import LEVELS, Level
from qola.manifest.archs import choose_modules, split
from qola.manifest.load import load
from qola.manifest.types import BuildMode
from qola.plan.spec import BuildRequest, BuildSpec
from qola.prebuilt.fetch import first_prebuilt
from qola.prebuilt.options import PrebuiltOptions
from qola.progress import library_progress, log
from qola.ruleset import ruleset_root


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
    wheel: str = "",
    require: Level = LEVELS[0],
    prebuilt: PrebuiltOptions | None = None,
    quiet: bool = False,
    environ: Mapping[str, str] | None = None,
) -> BuildResult:
    """Build the modules of a manifest and install them.

    The arguments up to `groups` are those of ROCm/QoLA (docs/guide/qola-build.md).

    Args:
        manifest_path: the manifest.
        output_dir: where to install: lib/, include/, configs/, licenses/, manifest.json and an
            SBOM: a bundle (docs/guide/bundle.md) of the modules that could be built.
        aiter_root: directory of the AITER tree. By default Bazel fetches and keeps it.
        archs: archs instead of the manifest's; an item may be a list with ; between.
        verbose: show every command.
        build_mode: mode of modules that have none of their own.
        aiter_commit: commit, tag or branch instead of the manifest's [qola].aiter_commit.
        patches_dir: folder of patches instead of [qola].patches_dir; an empty one for none.
        skip_checkout: use aiter_root as it is; `aiter_commit` and `patches_dir` do not count.
        groups: build only modules of these groups.
        aiter_remote: what git fetches a commit from.
        keep_going: go on with other kernels and modules when one fails.
        jobs: actions at a time.
        bazel_args: further arguments of bazel build.
        lazy: whether attention libraries are lazy ones (docs/guide/lazy.md), with share/qola/ and
            bin/; by default NVTE_CK_JIT says it. Modules that Python imports never are.
        static: whether lib/ also has an archive of the attention modules (docs/guide/static.md).
        wheel: version of a Python wheel of the bundle, which dist/ then has
            (docs/guide/bundle.md), "" for none; with one, prebuilt bundles are not looked for.
        require: how far each direction of Composable Kernel has to be followed; with more than
            opaque, prebuilt bundles are not looked for.
        prebuilt: where to look for a prebuilt bundle first (docs/guide/prebuilt.md); by default
            where manifest and environment say.
        quiet: log only warnings.
        environ: the environment: AITER_ARCHIVE_BATCH_SIZE, GPU_ARCHS, NVTE_CK_JIT, QOLA_BAZEL,
            QOLA_CACHE_HOME, and those of docs/guide/prebuilt.md; by default the process's.

    Returns:
        What manifest.json in `output_dir` holds; its `summary` counts the modules that failed, and
        its `bundle_error` says why there is no bundle of the others, or no wheel.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault. `output_dir` is then as it was.
        OSError: `output_dir` cannot be written to.
    """
    environ = os.environ if environ is None else environ
    request = BuildRequest(
        manifest_path,
        BuildSpec(split(archs or ()), build_mode, require),
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
        forms = Forms(choose_lazy(lazy, environ), static)
        chosen = resolve_build(request, environ)
        check_wheel(wheel, chosen.modules, chosen.triton)
        if require != LEVELS[0]:
            log.info(f"--require {require}: a plan decides it, so prebuilt bundles are not used")
        elif wheel:
            log.info("--wheel: Bazel packs its own bundle, so prebuilt bundles are not used")
        else:
            wanted = prebuilt or PrebuiltOptions()
            fetched = first_prebuilt(chosen, forms, bazel_args, wanted, environ, output)
            if fetched:
                return fetched
        setup = set_up(chosen, environ)
        check_static(static, forms.lazy, chosen.modules, environ)
        with setup.workspace():
            built = build_all(setup, forms, options, environ, wheel)
            return _install(chosen, forms.lazy, built, output)


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
    """Make a patched AITER tree without building: what `build_kernels` would build from.

    The arguments up to `groups` are ROCm/QoLA's. Of two commits or folders of patches, the
    argument wins over the manifest's; without either it is the wheel qola pins, without patches.

    Args:
        manifest_path: manifest whose [qola] aiter_commit and patches_dir apply.
        aiter_root: the directory: absent, empty, or made by this function before; by default one
            in the cache.
        aiter_commit: commit, tag, branch, or version of the pinned wheel.
        patches_dir: folder of patches.
        groups: refused unless the manifest has them; the tree is the same for all groups.
        aiter_remote: what git fetches from.
        environ: the environment, for the cache's place; by default the process's.

    Returns:
        Absolute path of the tree.

    Raises:
        ManifestError: the manifest is not valid, or has no such group.
        AiterError: the directory holds something else, or a patch does not fit; it is then as it
            was.
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
