"""The plan of a manifest's file, as ``qola plan`` makes it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import tree_of
from qola.checkout.prepare import LocalSource
from qola.checkout.request import DEFAULT_REMOTE, aiter_request, choose_patches
from qola.checkout.source import AiterSource, choose_for
from qola.errors import AiterError, Finding
from qola.fetch.fetched import tree_answers
from qola.fetch.pins import RECORD, pinned_id, recorded_patches
from qola.folder import Folder
from qola.manifest.archs import choose_modules, split
from qola.manifest.load import Manifest, load
from qola.plan import planner
from qola.plan.cached_plans import find_plan
from qola.plan.model import Plan
from qola.plan.request import Request, manifest_patches, resolve
from qola.plan.triton_kernels import triton_files, triton_trees
from qola.ruleset import ruleset_root

Progress = Callable[[str], None]


@dataclass(frozen=True)
class AiterOptions:
    """Options that choose the AITER tree of a plan, as `qola.api.build_kernels` explains them.

    Attributes:
        override: plan with the pinned AITER, or with `root`, whatever the manifest names.
    """

    root: Path | None = None
    commit: str | None = None
    remote: str = DEFAULT_REMOTE
    patches_dir: Path | None = None
    skip_checkout: bool = False
    override: bool = False


def plan_of(
    manifest_path: str | Path,
    *,
    archs: Sequence[str] = (),
    aiter_root: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> Plan:
    """Return the plan of a manifest: what it builds, and nothing is built.

    Args:
        manifest_path: the manifest.
        archs: archs instead of the manifest's.
        aiter_root: an AITER tree; by default that of the manifest's commit, or the pinned one,
            fetched once and kept in the cache.
        environ: the environment: GPU_ARCHS, QOLA_CACHE_HOME; by default the process's.
        progress: called with a line when a long step begins.

    Raises:
        QolaError: the manifest is not valid, it cannot be planned, or there is no AITER tree.
    """
    file = Path(manifest_path)
    request = request_of(
        file,
        file.as_posix(),
        AiterOptions(Path(aiter_root) if aiter_root else None),
        (),
        os.environ if environ is None else environ,
        progress,
        archs=tuple(archs),
    )
    return plan(request, progress)


def request_of(
    file: Path,
    display: str,
    aiter: AiterOptions,
    groups: Sequence[str],
    environ: Mapping[str, str],
    progress: Progress,
    **more: Any,
) -> Request:
    """Return what to plan for a manifest's file.

    Args:
        display: the file's name in messages.
        more: further fields of `Request`.

    Raises:
        QolaError: the manifest is not valid, or there is no AITER tree.
    """
    manifest = load(file, display=display)
    manifest = replace(manifest, modules=choose_modules(manifest, groups))
    tree, overridden = _find_tree(manifest, file, aiter, environ, progress)
    return Request(
        **{"name": file.stem, **more},
        manifest=manifest,
        tree=read_tree(tree),
        default_archs=split([environ.get("GPU_ARCHS", "")]),
        aiter_id=pinned_id(tree),
        overridden=overridden or aiter.override,
        aiter_patches=recorded_patches(tree),
        patches=manifest_patches(manifest, file),
        triton=triton_files(manifest, file, triton_trees(manifest, environ, progress)),
        answers=tree_answers(tree, environ),
    )


def _find_tree(
    manifest: Manifest,
    file: Path,
    aiter: AiterOptions,
    environ: Mapping[str, str],
    progress: Progress,
) -> tuple[Path, bool]:
    """Return the AITER tree, and whether it overrides the manifest; fetch it as a build does.

    Unlike a build, a plan changes a tree in `aiter.root` only if a commit or patches are named.
    """
    folder = file.absolute().parent
    if aiter.root and not (aiter.commit or aiter.patches_dir):
        as_it_is = aiter.skip_checkout or (aiter.root / RECORD).is_file()
        patches = None if as_it_is else choose_patches(None, manifest, folder)
        source = AiterSource(LocalSource(aiter.root), patches)
        return tree_of(source, environ, progress), aiter.skip_checkout
    known = replace(manifest, aiter_commit=None) if aiter.override else manifest
    root, patches_dir = aiter.root, aiter.patches_dir
    ruleset = ruleset_root()
    asked = aiter_request(known, folder, ruleset, root, aiter.commit, aiter.remote, patches_dir)
    try:
        source, overrides = choose_for(
            known, asked, environ, progress, skip_checkout=aiter.skip_checkout
        )
        return tree_of(source, environ, progress), overrides
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


def plan(request: Request, progress: Progress) -> Plan:
    """Plan in memory: who asks wants the plan alone."""
    return find_plan(
        request, lambda: planner.build_plan(resolve(request), Folder(), progress=progress)
    )
