"""Combines the options of a command and the manifest's keys that choose an AITER source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qola.common.layout import OWN_PATCHES, patches_folder
from qola.manifest.types import Manifest
from qola_base.cache import cache_directory, own_directory, refuse_foreign
from qola_base.errors import Finding, ManifestError

DEFAULT_REMOTE = "https://github.com/ROCm/aiter.git"
"""The default git repository of AITER commits."""


@dataclass(frozen=True)
class AiterOptions:
    """Options that choose the AITER tree.

    Attributes:
        root: directory of the tree; by default Bazel fetches and caches it.
        commit: commit, tag or branch instead of the manifest's [qola].aiter_commit.
        remote: git repository of the commit.
        patches_dir: folder of patches instead of [qola].patches_dir; an empty one for none.
        skip_checkout: use `root` unchanged, without `commit` and `patches_dir`.
        override: for plans: use the pinned AITER, or `root`, in place of the manifest's commit.
    """

    root: str | Path | None = None
    commit: str | None = None
    remote: str = DEFAULT_REMOTE
    patches_dir: str | Path | None = None
    skip_checkout: bool = False
    override: bool = False


@dataclass(frozen=True)
class AiterRequest:
    """The AITER to build from, as options and manifest specify it.

    Attributes:
        root: directory for the tree, None to let Bazel keep it.
        commit: commit, tag, branch, or version of the pinned wheel; None for that wheel, or for
            the tree in `root`.
        commit_asked: an option names the commit.
    """

    root: Path | None
    commit: str | None
    commit_asked: bool
    remote: str
    patches_dir: Path | None


def choose_patches(asked: Path | None, manifest: Manifest | None, folder: Path) -> Path | None:
    """Return the folder of patches: the requested one, [qola].patches_dir, or None.

    An empty folder and /dev/null mean no patches, as they do for ROCm/QoLA. [qola].patches_dir is
    relative to `folder`, or OWN_PATCHES. A missing folder is a ManifestError.
    """
    place = "--patches-dir"
    directory = asked
    if directory is None and manifest and manifest.patches_dir:
        place = manifest.place("qola", "patches_dir")
        directory = patches_folder(manifest.patches_dir, folder)
    if directory is None or directory == Path("/dev/null"):
        return None
    if not directory.is_dir():
        raise ManifestError(
            Finding(
                place,
                f"{directory}: no such directory",
                f"a folder of *.patch files, or {OWN_PATCHES} for qola's own",
                "--patches-dir /dev/null for no patches",
            ),
            "there are no such patches",
        )
    return directory if any(directory.iterdir()) else None


def default_aiter_root(environ: Mapping[str, str]) -> Path:
    """Return the default, private tree of `qola checkout` and `qola build --skip-checkout`."""
    cache = cache_directory(environ)
    own_directory(cache)
    refuse_foreign(cache / "aiter")
    return cache / "aiter"


def aiter_request(manifest: Manifest | None, folder: Path, options: AiterOptions) -> AiterRequest:
    """Return the AITER to build from; options override the manifest."""
    asked = patches_folder(options.patches_dir, Path.cwd()) if options.patches_dir else None
    return AiterRequest(
        root=Path(options.root).absolute() if options.root else None,
        commit=options.commit or (manifest.aiter_commit if manifest else None),
        commit_asked=bool(options.commit),
        remote=options.remote,
        patches_dir=choose_patches(asked, manifest, folder),
    )
