"""Plans a manifest's file without building it, as ``qola plan`` does."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qola.checkout.default_tree import tree_of
from qola.checkout.request import AiterOptions, choose_patches
from qola.checkout.source import AiterSource, LocalSource, choose_for, pinned_wheel
from qola.fetch.fetched import tree_answers
from qola.fetch.pins import RECORD
from qola.manifest.archs import choose_modules
from qola.manifest.load import Manifest, load
from qola.plan import planner
from qola.plan.model import Plan
from qola.plan.request import Request, make_request
from qola.plan.spec import BuildRequest, BuildSpec
from qola.plan.triton_kernels import triton_trees
from qola_base.errors import AiterError, Finding, visible


def plan_of(
    manifest_path: str | Path,
    *,
    archs: Sequence[str] = (),
    aiter_root: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """Plan a manifest without building it; arguments are as of `qola.BuildRequest`.

    Raises:
        QolaError: the manifest is invalid or cannot be planned, or no AITER tree is available.
    """
    file = Path(manifest_path)
    environ = os.environ if environ is None else environ
    build = BuildRequest(file, BuildSpec(tuple(archs)), AiterOptions(aiter_root))
    return planner.plan(plan_request(build, file.as_posix(), environ))


def plan_request(
    build: BuildRequest,
    display: str,
    environ: Mapping[str, str],
    *,
    name: str = "",
    rocm_version: str | None = None,
) -> Request:
    """Read a manifest's file, and find its AITER tree and Triton files.

    Args:
        display: the file's name in messages.
        name: name of the plan; by default the file's stem.
        rocm_version: HIP version of the toolchain, None if there is none.

    Raises:
        QolaError: the manifest is invalid, or no AITER tree is available.
    """
    file = Path(build.manifest_path)
    # A plan is text: bytes of names that the locale cannot decode are escaped.
    manifest = load(file, display=visible(display))
    manifest = replace(manifest, modules=choose_modules(manifest, build.groups))
    tree, overridden = _find_tree(manifest, file, build.aiter, environ)
    return make_request(
        manifest,
        file,
        tree,
        replace(build.spec, override_aiter_commit=overridden or build.aiter.override),
        environ,
        name=visible(name or file.stem),
        trees=triton_trees(manifest, environ),
        rocm_version=rocm_version,
        answers=tree_answers(tree, environ),
        checkout=Path(build.aiter.root) if build.aiter.root else None,
    )


def _find_tree(
    manifest: Manifest, file: Path, aiter: AiterOptions, environ: Mapping[str, str]
) -> tuple[Path, bool]:
    """Find or fetch the AITER tree; return it, and whether it overrides the manifest's.

    A build prepares a tree in `aiter.root` in any case, a plan only for a named commit or patches.
    """
    folder = file.absolute().parent
    if aiter.root and not (aiter.commit or aiter.patches_dir):
        as_it_is = aiter.skip_checkout or Path(aiter.root, RECORD).is_file()
        patches = None if as_it_is else choose_patches(None, manifest, folder)
        source = AiterSource(LocalSource(Path(aiter.root)), patches)
        return tree_of(source, environ), aiter.skip_checkout
    known = replace(manifest, aiter_commit=None) if aiter.override else manifest
    try:
        source, overrides = choose_for(known, folder, aiter, environ)
        return tree_of(source, environ), overrides
    except AiterError as error:
        if known.aiter_commit is None or aiter.commit:
            raise
        place = manifest.place("qola", "aiter_commit")
        found = f"{known.aiter_commit} has no usable tree"
        expected = (
            "a commit that git can fetch and that patches_dir fits, or a tree of yours "
            f"(--aiter-root DIR); --override-aiter-commit plans with AITER {pinned_wheel().version}"
        )
        fix = f"qola plan {shlex.quote(manifest.file)} --override-aiter-commit"
        other = Finding(place, found, expected, fix)
        raise AiterError((*error.findings, other), error.title) from None
