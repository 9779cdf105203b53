"""The plan of a manifest's file, as ``qola plan`` makes it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qola.checkout.default_tree import tree_of
from qola.checkout.prepare import LocalSource
from qola.checkout.request import AiterOptions, aiter_request, choose_patches
from qola.checkout.source import AiterSource, choose_for
from qola.errors import AiterError, Finding
from qola.fetch.fetched import tree_answers
from qola.fetch.pins import RECORD
from qola.folder import Folder
from qola.manifest.archs import choose_modules
from qola.manifest.load import Manifest, load
from qola.plan import planner
from qola.plan.build_request import BuildRequest
from qola.plan.cached_plans import find_plan
from qola.plan.make_request import make_request
from qola.plan.model import Plan
from qola.plan.request import Request, resolve
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import triton_trees
from qola.progress import log
from qola.ruleset import ruleset_root


def plan_of(
    manifest_path: str | Path,
    *,
    archs: Sequence[str] = (),
    aiter_root: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a manifest: what it builds, and nothing is built.

    Args:
        manifest_path: the manifest.
        archs: archs instead of the manifest's.
        aiter_root: an AITER tree; by default that of the manifest's commit, or the pinned one,
            fetched once and kept in the cache.
        environ: the environment: GPU_ARCHS, QOLA_CACHE_HOME; by default the process's.

    Raises:
        QolaError: the manifest is not valid, it cannot be planned, or there is no AITER tree.
    """
    file = Path(manifest_path)
    environ = os.environ if environ is None else environ
    build = BuildRequest(file, BuildSpec(tuple(archs)), AiterOptions(aiter_root))
    request = request_of(build, file.as_posix(), environ)
    return plan(request)


def request_of(
    build: BuildRequest,
    display: str,
    environ: Mapping[str, str],
    *,
    name: str = "",
    rocm_version: str | None = None,
) -> Request:
    """Return the request of the plan of a manifest's file.

    Args:
        display: the file's name in messages.
        name: name of the plan; by default the file's stem.
        rocm_version: HIP version of the toolchain, None if there is none.

    Raises:
        QolaError: the manifest is not valid, or there is no AITER tree.
    """
    file = Path(build.manifest_path)
    manifest = load(file, display=display)
    manifest = replace(manifest, modules=choose_modules(manifest, build.groups))
    tree, overridden = _find_tree(manifest, file, build.aiter, environ)
    return make_request(
        manifest,
        file,
        tree,
        replace(build.spec, override_aiter_commit=overridden or build.aiter.override),
        environ,
        name=name or file.stem,
        trees=triton_trees(manifest, environ),
        rocm_version=rocm_version,
        answers=tree_answers(tree, environ),
    )


def _find_tree(
    manifest: Manifest,
    file: Path,
    aiter: AiterOptions,
    environ: Mapping[str, str],
) -> tuple[Path, bool]:
    """Return the AITER tree, and whether it overrides the manifest; fetch it as a build does.

    Unlike a build, a plan changes a tree in `aiter.root` only if a commit or patches are named.
    """
    folder = file.absolute().parent
    if aiter.root and not (aiter.commit or aiter.patches_dir):
        as_it_is = aiter.skip_checkout or Path(aiter.root, RECORD).is_file()
        patches = None if as_it_is else choose_patches(None, manifest, folder)
        source = AiterSource(LocalSource(Path(aiter.root)), patches)
        return tree_of(source, environ), aiter.skip_checkout
    known = replace(manifest, aiter_commit=None) if aiter.override else manifest
    asked = aiter_request(known, folder, ruleset_root(), aiter)
    try:
        source, overrides = choose_for(known, asked, environ, skip_checkout=aiter.skip_checkout)
        return tree_of(source, environ), overrides
    except AiterError as error:
        if asked.commit is None or aiter.commit:
            raise
        other = Finding(
            manifest.place("qola", "aiter_commit"),
            f"{asked.commit}, of which there is no tree",
            "a commit that git can fetch and that patches_dir fits, or a tree of yours "
            f"(--aiter-root DIR); --override-aiter-commit plans with AITER {asked.pin['version']}",
            f"qola plan {shlex.quote(manifest.file)} --override-aiter-commit",
        )
        raise AiterError((*error.findings, other), error.title) from None


def plan(request: Request) -> Plan:
    """Return the plan of a request, cached or made in memory."""
    return find_plan(request, lambda: make_plan(request, Folder()))


def make_plan(request: Request, output: Folder) -> Plan:
    """Plan a request and log it; write the generated sources to `output`."""
    resolved = resolve(request)
    archs = ", ".join(resolved.archs)
    log.info(f"{request.name}: generating kernel instances for {archs}")
    return planner.build_plan(resolved, output)
