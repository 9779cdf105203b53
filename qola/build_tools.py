"""ROCm/QoLA's Python interface: its names and arguments of `build_kernels` and `checkout_aiter`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qola import api
from qola.api import AiterOptions, BuildOptions, BuildRequest, BuildResult, BuildSpec, Forms
from qola.manifest.types import BuildMode

__all__ = ["build_kernels", "checkout_aiter"]


def build_kernels(
    manifest_path: str | Path,
    output_dir: str | Path,
    aiter_root: str | Path | None = None,
    archs: Sequence[str] | None = None,
    verbose: bool = False,
    build_mode: BuildMode | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    skip_checkout: bool = False,
    groups: Sequence[str] | None = None,
) -> BuildResult:
    """Call `qola.build_kernels` with ROCm/QoLA's arguments.

    An item of `archs` may be a list separated by ;. NVTE_CK_JIT chooses between full and lazy
    libraries.
    """
    request = BuildRequest(
        manifest_path,
        BuildSpec(tuple(archs or ()), build_mode),
        AiterOptions(
            aiter_root, aiter_commit, patches_dir=patches_dir, skip_checkout=skip_checkout
        ),
        tuple(groups or ()),
        Forms(lazy=None),
    )
    return api.build_kernels(request, output_dir, BuildOptions(subcommands=verbose))


def checkout_aiter(
    manifest_path: str | Path | None = None,
    aiter_root: str | Path | None = None,
    aiter_commit: str | None = None,
    patches_dir: str | Path | None = None,
    groups: Sequence[str] | None = None,
) -> str:
    """Call `qola.checkout_aiter` with ROCm/QoLA's arguments."""
    aiter = AiterOptions(aiter_root, aiter_commit, patches_dir=patches_dir)
    return api.checkout_aiter(manifest_path, aiter, groups or ())
