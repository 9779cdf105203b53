"""ROCm/QoLA's precedence: which archs, patches and modules a build gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from qola.archs import resolve, split
from qola.errors import Finding, ManifestError
from qola.manifest_types import Manifest, ModuleSpec

DEFAULT_REMOTE = "https://github.com/ROCm/aiter.git"
"""Where a commit of AITER comes from unless a remote is named."""


def choose_archs(
    asked: Sequence[str],
    manifest: Manifest,
    gpu_archs: str,
    native: Callable[[], tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the archs to build for instead of the manifest's, () for the manifest's own.

    Args:
        asked: archs of the command line, lists allowed.
        manifest: the manifest.
        gpu_archs: value of $GPU_ARCHS, "" if it is not set.
        native: asks the machine; called only if need be.

    Raises:
        PlanError, ToolchainError: as `resolve`.
    """
    archs = resolve(split(asked), manifest, split([gpu_archs]), native)
    return () if archs == tuple(sorted(set(manifest.architectures))) else archs


def choose_patches(asked: Path | None, manifest: Manifest | None, folder: Path) -> Path | None:
    """Return the folder of patches: the one asked for, else [qola].patches_dir, else None.

    An empty folder and /dev/null mean no patches, as they do for ROCm/QoLA.

    Args:
        asked: folder of the command line, absolute.
        manifest: the manifest, None for none.
        folder: what [qola].patches_dir is relative to.

    Raises:
        ManifestError: there is no such folder.
    """
    place = "--patches-dir"
    directory = asked
    if directory is None and manifest and manifest.patches_dir:
        place = manifest.place("qola", "patches_dir")
        directory = folder / manifest.patches_dir
    if directory is None or directory == Path("/dev/null"):
        return None
    if not directory.is_dir():
        raise ManifestError(
            Finding(
                place,
                f"{directory}: no such directory",
                "a folder of *.patch files",
                "--patches-dir /dev/null for no patches",
            ),
            "there are no such patches",
        )
    return directory if any(directory.iterdir()) else None


def choose_modules(manifest: Manifest, groups: Sequence[str]) -> tuple[ModuleSpec, ...]:
    """Return the modules to build: all, or those of the groups.

    Raises:
        ManifestError: no module has such a group.
    """
    wanted = split(groups)
    known = sorted({module.group for module in manifest.modules if module.group})
    unknown = [group for group in wanted if group not in known]
    if unknown:
        raise ManifestError(
            Finding(
                f"{manifest.file} [[modules]].group",
                f"none with {', '.join(unknown)}",
                f"a group out of {', '.join(known)}" if known else "modules with a group",
            )
        )
    return tuple(m for m in manifest.modules if not wanted or m.group in wanted)


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return where qola keeps things: below XDG_CACHE_HOME, or ~/.cache."""
    base = environ.get("XDG_CACHE_HOME", "")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    # The specification says to ignore a relative path.
    return (Path(base) if base.startswith("/") else home / ".cache") / "qola"
