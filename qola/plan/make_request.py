"""Assembles the request of a plan from a manifest's file, an AITER tree and a BuildSpec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qola.aiter.tree import read_tree
from qola.answers import NO_ANSWERS, AnswerCache
from qola.fetch.pins import pinned_id, recorded_patches
from qola.manifest.archs import split
from qola.manifest.load import Manifest
from qola.plan.request import Request, manifest_patches
from qola.plan.spec import BuildSpec
from qola.plan.triton_kernels import triton_files


def make_request(
    manifest: Manifest,
    file: Path,
    tree: Path,
    spec: BuildSpec,
    environ: Mapping[str, str],
    *,
    name: str,
    trees: Mapping[str, Path],
    rocm_version: str | None = None,
    answers: AnswerCache = NO_ANSWERS,
) -> Request:
    """Return the request of a plan.

    Args:
        file: where the manifest is; its patches and Triton files are relative to its directory.
        tree: a prepared AITER tree.
        environ: GPU_ARCHS names the archs if neither spec nor manifest does.
        name: name of the manifest.
        trees: fetched trees of kernels in Triton.
        rocm_version: HIP version of the toolchain, None if there is none.

    Raises:
        QolaError: the tree, a patch or a Triton file cannot be read.
    """
    return Request(
        name=name,
        manifest=manifest,
        tree=read_tree(tree),
        spec=spec,
        default_archs=split([environ.get("GPU_ARCHS", "")]),
        rocm_version=rocm_version,
        aiter_id=pinned_id(tree),
        aiter_patches=recorded_patches(tree),
        patches=() if spec.override_aiter_commit else manifest_patches(manifest, file),
        triton=triton_files(manifest, file, trees),
        answers=answers,
    )
