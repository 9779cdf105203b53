"""The plan of a manifest's file, as ``qola plan`` makes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qola.aiter.tree import read_tree
from qola.checkout.default_tree import find_tree
from qola.fetch.fetched import tree_answers
from qola.fetch.pins import pinned_id, recorded_patches
from qola.folder import Folder
from qola.manifest.archs import choose_modules, split
from qola.manifest.load import load
from qola.plan import planner
from qola.plan.cached_plans import find_plan
from qola.plan.model import Plan
from qola.plan.request import Request, manifest_patches, resolve
from qola.plan.triton_kernels import triton_files, triton_trees

Progress = Callable[[str], None]


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
        aiter_root: an AITER tree; by default the pinned one, fetched once and kept in the cache.
        environ: the environment: GPU_ARCHS, QOLA_CACHE_HOME; by default the process's.
        progress: called with a line when a long step begins.

    Raises:
        QolaError: the manifest is not valid, it cannot be planned, or there is no AITER tree.
    """
    file = Path(manifest_path)
    request = request_of(
        file,
        file.as_posix(),
        Path(aiter_root) if aiter_root else None,
        (),
        os.environ if environ is None else environ,
        progress,
        archs=tuple(archs),
    )
    return plan(request, progress)


def request_of(
    file: Path,
    display: str,
    aiter_root: Path | None,
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
    tree = find_tree(aiter_root, environ, progress)
    return Request(
        **{"name": file.stem, **more},
        manifest=manifest,
        tree=read_tree(tree),
        default_archs=split([environ.get("GPU_ARCHS", "")]),
        aiter_id=pinned_id(tree),
        aiter_patches=recorded_patches(tree),
        patches=manifest_patches(manifest, file),
        triton=triton_files(manifest, file, triton_trees(manifest, environ, progress)),
        answers=tree_answers(tree, environ),
    )


def plan(request: Request, progress: Progress) -> Plan:
    """Plan in memory: who asks wants the plan alone."""
    return find_plan(
        request, lambda: planner.build_plan(resolve(request), Folder(), progress=progress)
    )
